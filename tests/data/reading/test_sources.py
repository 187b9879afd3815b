"""Paths, globs, folders and URLs: which files they are, and in which state."""

import os
import tempfile
from pathlib import Path

import pytest
from support.table_files import simple, write

from seqclf.data.reading import sources
from seqclf.data.reading.sources import Source, class_folder, local_files, source_state


def source(path):
    return Source(str(path), "data.train")


def test_a_folder_is_its_files_or_those_of_its_folders(tmp_path):
    plain, deep = (write(tmp_path / name, simple()) for name in ("b.csv", ".hidden.csv"))
    assert local_files(source(tmp_path)) == [plain] and deep.exists()
    (tmp_path / "a").mkdir()
    inner = write(tmp_path / "a" / "c.csv", simple())
    assert local_files(source(tmp_path)) == [inner]
    assert class_folder(source(tmp_path)) == tmp_path and class_folder(source(plain)) is None


def test_the_digest_follows_the_files_and_how_they_are_read(tmp_path):
    path = write(tmp_path / "t.parquet", simple())
    digest = source_state(source(path))
    assert digest == source_state(source(path))
    assert source_state(Source(str(path), "data.train", encoding="latin-1")) != digest
    os.utime(path, ns=(1, 1))
    assert source_state(source(path)) != digest


@pytest.mark.parametrize("home", ["unknown", "not writable", "taken by another user"])
def test_without_a_home_folder_the_cache_is_a_private_temporary_folder(home, monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("SEQCLF_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if home == "unknown":
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    else:
        monkeypatch.setenv("HOME", str(tmp_path / "none"))
        monkeypatch.setattr(os, "access", lambda *_: False)
    usual = tmp_path / f"seqclf-{os.getuid()}"
    if home == "taken by another user":
        usual.mkdir()
        usual.chmod(0o777)
    sources._default_cache.cache_clear()
    try:
        folder = Path(sources.cache_folder())
        assert sources.cache_folder() == str(folder)
    finally:
        sources._default_cache.cache_clear()
    assert folder.parent == tmp_path and folder.stat().st_mode & 0o777 == 0o700
    assert (folder == usual) is (home != "taken by another user")
    assert capsys.readouterr().err.count(f"data.cache_dir={folder}") == 1
