"""Locks on files, and systems without them."""

import os
from pathlib import Path

import psutil

from seqclf.system import file_locks
from seqclf.system.atomic_files import scratch_folder, sweep, write_output
from seqclf.system.run_folder import locked


def test_nothing_is_locked_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    with locked(tmp_path):
        write_output(tmp_path / "a.json", "{}")
        (tmp_path / ".b.json.0123.part").touch()
        sweep(tmp_path, ".*.part")
    # The temporary file may be that of a live process.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.0123.part", "a.json"]


def test_no_folder_is_opened_and_no_open_file_renamed_without_locks(tmp_path, monkeypatch):
    """Windows does neither."""
    opened, open_file, replace = [], os.open, type(tmp_path).replace

    def open_no_folder(path, *arguments, **options):
        if Path(path).is_dir() and "dir_fd" not in options:  # `shutil.rmtree` gives it, where the system has it
            raise PermissionError(13, "Permission denied", str(path))
        opened.append(str(path))
        return open_file(path, *arguments, **options)

    def replace_closed(path, target):
        assert str(path) not in {file.path for file in psutil.Process().open_files()}
        return replace(path, target)

    monkeypatch.setattr(file_locks, "fcntl", None)
    monkeypatch.setattr(os, "open", open_no_folder)
    monkeypatch.setattr(type(tmp_path), "replace", replace_closed)
    write_output(tmp_path / "a.json", "{}")
    with scratch_folder(tmp_path, "scratch-") as folder:
        assert folder.is_dir()
    assert opened and [path.name for path in tmp_path.iterdir()] == ["a.json"]
