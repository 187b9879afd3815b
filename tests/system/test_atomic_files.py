"""Files are replaced completely or not at all, even if the process that writes them is killed."""

import os
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from seqclf.errors import InputError
from seqclf.system import atomic_files
from seqclf.system.atomic_files import atomic_replace, scratch_folder, sweep, write_bytes, write_output
from seqclf.system.run_folder import locked

# Writes half of a file or folder, then waits to be killed.
KILLED = """
import sys, time
from pathlib import Path
from seqclf.system.atomic_files import atomic_replace, scratch_folder
path = Path(sys.argv[2])
make = atomic_replace(path) if sys.argv[1] == "file" else scratch_folder(path.parent, ".making-")
with make as unfinished:
    (unfinished if unfinished.is_file() else unfinished / "inside").write_text("half")
    print("written", flush=True)
    time.sleep(60)
"""


def names(folder):
    return [path.name for path in folder.iterdir()]


def writer(kind, path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, kind, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_bytes(path, b"old")
    with pytest.raises(RuntimeError), atomic_replace(path) as unfinished:
        unfinished.write_text("half")
        assert unfinished.parent == path.parent, "a rename across file systems is a copy"
        raise RuntimeError
    assert path.read_text() == "old"
    write_output(path, "é")
    assert path.read_text(encoding="utf-8") == "é" and names(path.parent) == ["file.txt"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_leftovers_of_killed_processes_are_deleted_and_files_of_live_ones_stay(tmp_path, kind):
    path = tmp_path / "file[1].txt"
    path.write_text("old")
    killed, live = writer(kind, path), writer(kind, path)
    killed.kill()
    killed.communicate()
    assert len(names(tmp_path)) == 3
    with atomic_replace(path) if kind == "file" else scratch_folder(tmp_path, ".making-"):
        assert len(names(tmp_path)) == 3, "those of the live process and of this one"
    assert path.read_text() == ("" if kind == "file" else "old")
    live.kill()
    live.communicate()


def test_folders_of_the_user_stay(tmp_path):
    user_folder = tmp_path / ".exporting-notes"
    user_folder.mkdir()
    with scratch_folder(tmp_path, ".exporting-") as scratch:
        assert set(tmp_path.iterdir()) == {user_folder, scratch}
    assert list(tmp_path.iterdir()) == [user_folder]


def test_a_sweep_follows_no_link_and_waits_for_no_fifo(tmp_path):
    os.mkfifo(tmp_path / "fifo.part")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("of the user")
    (tmp_path / "folder.part").symlink_to(tmp_path / "folder")
    (tmp_path / "file.part").symlink_to(tmp_path / "folder" / "file")
    before = sorted(names(tmp_path))
    sweep(tmp_path, "*.part")
    assert sorted(names(tmp_path)) == before and names(tmp_path / "folder") == ["file"]


@contextmanager
def full_disk():
    """Limit files of this process, the output of the tests included, to 1000 bytes."""
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_keeps_the_earlier_file_and_names_it(tmp_path):
    path = tmp_path / "metrics.json"
    path.write_text("old")
    message = r"metrics\.json: cannot be written \(File too large\); free space there, or"
    with full_disk(), pytest.raises(InputError, match=message):
        write_output(path, "x" * 5000)
    assert path.read_text() == "old" and names(tmp_path) == ["metrics.json"]


def test_nothing_is_locked_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "fcntl", None)
    with locked(tmp_path):
        write_output(tmp_path / "a.json", "{}")
        (tmp_path / ".b.json.0123.part").touch()
        sweep(tmp_path, ".*.part")
    # The temporary file may be that of a live process.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.0123.part", "a.json"]
