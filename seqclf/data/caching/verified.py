"""States in which the files of a cache folder were verified.

They are noted in the folder, or, where it is read-only (a share, a mounted copy), in a folder of the user.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seqclf.data.reading.sources import file_state
from seqclf.system.atomic_files import write_bytes

STATES = "states.json"
NOTES = "seqclf-verified"


def untrusted(folder: Path, states: Mapping[str, list[int]], marker: str) -> set[str]:
    """Names of the files that no note knows in their present state. `marker`: see `_key`."""
    notes = [_read(folder / STATES), *(_read(notes / f"{_key(folder, marker)}.json") for notes in _own_folders())]
    return {name for name, state in states.items() if not any(note.get(name) == state for note in notes)}


def trust(folder: Path, states: Mapping[str, list[int]], marker: str) -> None:
    """Note that files were verified in these states; says so if that is not possible, as all is read again then."""
    content = json.dumps(states).encode()
    with suppress(OSError):
        write_bytes(folder / STATES, content)
        return
    for notes in _own_folders(create=True):
        with suppress(OSError):
            write_bytes(notes / f"{_key(folder, marker)}.json", content)
            return
    print(
        f"{folder}: is read as a whole at every start, as nothing can be noted in it, nor in the user's cache; "
        "set XDG_CACHE_HOME to a folder that can be written",
        file=sys.stderr,
    )


@contextmanager
def one_at_a_time(folder: Path, marker: str) -> Iterator[None]:
    """Let the processes of a user verify a folder one after another, so that the later ones trust what the first read.

    Without a folder for the lock they do it all at once. The lock is not in the cache: NFS refuses one on a file that
    cannot be written.
    """
    handle = None
    for notes in _own_folders(create=True):
        with suppress(OSError):
            handle = os.open(notes / f"{_key(folder, marker)}.lock", os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
            break
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _key(folder: Path, marker: str) -> str:
    """The name of a note: of the path and of the state of the file `marker`, so that mounts that give the same files
    other inodes do not overwrite the notes of one another."""
    return hashlib.sha256(json.dumps([str(folder.resolve()), file_state(folder / marker)]).encode()).hexdigest()[:32]


def _own_folders(create: bool = False) -> list[Path]:
    """Folders for notes that are there, or can be created: of the user's cache, and of temporary files.

    One that somebody else could write to is left out, as notes there might vouch for damaged files.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    usable = []
    for path in (cache / NOTES, Path(tempfile.gettempdir()) / f"{NOTES}-{os.getuid()}"):
        with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home folder
            path = path.expanduser()
            if create:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
                usable.append(path)
    return usable


def _read(path: Path) -> dict[str, Any]:
    try:
        states = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return states if isinstance(states, dict) else {}
