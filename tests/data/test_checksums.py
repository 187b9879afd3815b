"""Files hashed in parts are hashed as when read, whatever the parts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data import checksums
from seqclf.data.checksums import ChecksumFile, DamagedError, read_checked, verify, write_checked, write_checksums


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_the_checksums_of_a_written_file_are_those_of_reading_it(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checksums, "BLOCK", 16)
        file = ChecksumFile(folder / "a.bin")
        for part in parts:
            file.write(part)
        file.close()
        assert (folder / "a.bin").read_bytes() == b"".join(parts)
        write_checksums(folder, {"a.bin": file.blocks()})
        verify(folder, full=True)
        written = read_checked(folder / "checksums.json")
        (folder / "checksums.json").unlink()
        (folder / "states.json").unlink()
        write_checksums(folder, {})
        assert read_checked(folder / "checksums.json") == written


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"hash": "0", "content": {}}', '{"content": 5}', "\xff"])
def test_a_file_that_is_no_checked_json_is_refused(tmp_path, text):
    path = tmp_path / "checksums.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError):
        read_checked(path)
    with pytest.raises(DamagedError):
        verify(tmp_path, full=False)


def test_checked_json_comes_back_as_it_was(tmp_path):
    value = {"é": [1.5, None, 10**20], "b": {"c": "\U0001f600\n"}}
    write_checked(tmp_path / "a.json", value)
    assert read_checked(tmp_path / "a.json") == value
