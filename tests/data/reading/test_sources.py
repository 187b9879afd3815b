"""Paths, globs, folders and URLs: which files they are, and in which state."""

import os

import pytest
from support.table_files import simple, write

from seqclf.data.reading.sources import Source, class_folder, local_files, source_state
from seqclf.errors import InputError


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


def test_a_built_in_file_that_does_not_exist_is_named():
    with pytest.raises(InputError, match=r"data.train=builtin:nope.parquet: no such built-in file"):
        local_files(source("builtin:nope.parquet"))
