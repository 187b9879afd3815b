"""A file written in parts has the checksums of the same file read at once. Of large folders, touched files are read."""

import errno
import os
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.storage import checksums
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
def test_the_hash_of_a_written_file_is_that_of_reading_it(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("written")
    file = ChecksumFile(folder / "a.bin")
    for part in parts:
        file.write(part)
    file.close()
    assert (folder / "a.bin").read_bytes() == b"".join(parts)
    write_checksums(folder, {"a.bin": file.hash.hexdigest()})
    verify(folder, full=True)
    written = read_checked(folder / "checksums.json")
    (folder / "checksums.json").unlink()
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
def large(tmp_path, monkeypatch):
    """A folder of two files that counts as large."""
    monkeypatch.setattr(checksums, "SMALL", 0)
    folder = tmp_path / "large"
    folder.mkdir()
    for name in ("a.bin", "b.bin"):
        (folder / name).write_bytes(os.urandom(800))
    write_checksums(folder, {})
    return folder


@pytest.fixture
def files_read(monkeypatch):
    read, digest = [], checksums._digest
    monkeypatch.setattr(checksums, "_digest", lambda path: read.append(path.name) or digest(path))
    return read


def lose_a_bit(path, keep_time):
    """Change a bit of a file, as somebody who writes to it does, or as a disk does, which changes no time."""
    times, content = path.stat(), bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + (0 if keep_time else 1)))


def test_of_a_large_folder_only_touched_files_are_read(large, files_read):
    verify(large, full=False)
    assert files_read == []
    os.utime(large / "a.bin", ns=(1, 1))
    for _ in range(2):
        verify(large, full=False)
    assert files_read == ["a.bin"], "the new time is recorded"
    verify(large, full=True)
    assert sorted(files_read) == ["a.bin", "a.bin", "b.bin"]
    lose_a_bit(large / "b.bin", keep_time=False)
    with pytest.raises(DamagedError, match=r"b\.bin differs"):
        verify(large, full=False)


def test_a_bit_lost_by_the_disk_is_noticed_in_a_small_folder_and_on_request(large, monkeypatch):
    lose_a_bit(large / "a.bin", keep_time=True)
    verify(large, full=False)
    with pytest.raises(DamagedError, match=r"a\.bin differs"):
        verify(large, full=True)
    monkeypatch.setattr(checksums, "SMALL", 1600)
    with pytest.raises(DamagedError, match=r"a\.bin differs"):
        verify(large, full=False)


def test_a_copy_is_read_once_or_each_time_if_it_cannot_be_written(large, files_read, monkeypatch, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in large.iterdir():
        shutil.copyfile(path, copy / path.name)
        os.utime(copy / path.name, ns=(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "atomic_replace", read_only)
        for _ in range(2):
            verify(copy, full=False)
    assert len(files_read) == 4
    for _ in range(2):
        verify(copy, full=False)
    assert len(files_read) == 6


def read_only(path):
    raise OSError(errno.EROFS, "Read-only file system", str(path))
