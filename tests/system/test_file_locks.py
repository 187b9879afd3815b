"""Locks on files, and systems without them."""

from seqclf.system import file_locks
from seqclf.system.atomic_files import sweep, write_output
from seqclf.system.run_folder import locked


def test_nothing_is_locked_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(file_locks, "fcntl", None)
    with locked(tmp_path):
        write_output(tmp_path / "a.json", "{}")
        (tmp_path / ".b.json.0123.part").touch()
        sweep(tmp_path, ".*.part")
    # The temporary file may be that of a live process.
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.json.0123.part", "a.json"]
