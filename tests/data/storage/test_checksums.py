"""A file written in parts has the checksums of the same file read at once. Verified files are not read again."""

import errno
import os
import shutil
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.storage import checksums, verified
from seqclf.data.storage.checksums import (
    ChecksumFile,
    DamagedError,
    read_checked,
    verify,
    write_checked,
    write_checksums,
)


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


def test_checked_json_is_read_as_it_was_written(tmp_path):
    value = {"é": [1.5, None, 10**20], "b": {"c": "\U0001f600\n"}}
    write_checked(tmp_path / "a.json", value)
    assert read_checked(tmp_path / "a.json") == value


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A copy of a large cache on a share that cannot be written. `home`: writable folders of the user."""
    monkeypatch.setattr(checksums, "BLOCK", 8)
    monkeypatch.setattr(checksums, "CHEAP", 0)
    monkeypatch.setattr(checksums, "SAMPLED", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(verified.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "made").mkdir()
    for name in ("a.bin", "b.bin"):
        (tmp_path / "made" / name).write_bytes(os.urandom(800))
    write_checksums(tmp_path / "made", {})
    share = shutil.copytree(tmp_path / "made", tmp_path / "share")
    write = verified.write_bytes

    def refused(path, content):
        if share in path.parents:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        write(path, content)

    monkeypatch.setattr(verified, "write_bytes", refused)
    return share


@pytest.fixture
def blocks_read(monkeypatch):
    read, hash_block = [], checksums._hash_block
    monkeypatch.setattr(checksums, "_hash_block", lambda *block: read.append(block) or hash_block(*block))
    return read


def test_a_cache_on_a_read_only_share_is_read_in_full_only_once(read_only, blocks_read, tmp_path, capsys):
    counts = []
    for _ in range(3):
        verify(read_only, full=False)
        counts.append(len(blocks_read))
        blocks_read.clear()
    assert counts == [200, 1, 1] and capsys.readouterr().err == ""
    (read_only / "a.bin").write_bytes((read_only / "b.bin").read_bytes())
    with pytest.raises(DamagedError, match=r"a\.bin differs"):
        verify(read_only, full=False)
    for path in (tmp_path / "home").rglob("*.json"):
        path.write_text("[")
    blocks_read.clear()
    shutil.copyfile(tmp_path / "made/a.bin", read_only / "a.bin")
    verify(read_only, full=False)
    assert len(blocks_read) == 200, "a note that is damaged vouches for nothing"


def test_records_go_to_the_temporary_folder_if_there_is_no_home(read_only, blocks_read, tmp_path):
    (tmp_path / "home").write_text("in the way")
    (tmp_path / "tmp").mkdir()
    for _ in range(2):
        verify(read_only, full=False)
    assert len(blocks_read) == 201


def test_a_folder_of_records_that_others_can_write_to_is_not_used(read_only, blocks_read, tmp_path, capsys):
    for path in (tmp_path / "home" / verified.RECORDS, tmp_path / "tmp" / f"{verified.RECORDS}-{os.getuid()}"):
        path.mkdir(parents=True)
        path.chmod(0o777)
    for _ in range(2):
        verify(read_only, full=False)
    assert len(blocks_read) == 400
    assert capsys.readouterr().err.count("is read in full at every start") == 2


def test_of_several_ranks_one_reads_the_share_and_the_others_trust_it(read_only, blocks_read, monkeypatch):
    """Threads stand for ranks: a lock of `flock` belongs to the handle, not to the process."""
    counted = checksums._hash_block
    monkeypatch.setattr(checksums, "_hash_block", lambda *block: time.sleep(0.0005) or counted(*block))
    ranks = [threading.Thread(target=verify, args=(read_only, False)) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert len(blocks_read) == 200 + 3


def test_a_file_that_changes_while_it_is_verified_is_not_trusted(read_only, blocks_read, monkeypatch):
    counted = checksums._hash_block

    def touched(path, position):
        os.utime(path, ns=(1, 1))
        return counted(path, position)

    monkeypatch.setattr(checksums, "_hash_block", touched)
    verify(read_only, full=False)
    monkeypatch.setattr(checksums, "_hash_block", counted)
    blocks_read.clear()
    verify(read_only, full=False)
    assert len(blocks_read) == 200
