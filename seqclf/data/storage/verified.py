"""Records of the states in which the files of a cache folder were verified.

They are kept in the folder itself, or in a folder of the user if it is read-only (a share, a mounted copy).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.data.reading.sources import FileState, file_state
from seqclf.system.atomic_files import write_bytes
from seqclf.system.file_locks import lock

STATES = "states.json"
RECORDS = "seqclf-verified"  # folder of the user


def untrusted(folder: Path, states: Mapping[str, FileState], marker: str) -> set[str]:
    """Names of the files that no record knows in their present state.

    `states`: of the files, by path in `folder`. `marker`: see `_key`.
    """
    records = [_read(folder / STATES)]
    records += [_read(user_folder / f"{_key(folder, marker)}.json") for user_folder in _user_folders()]
    return {name for name, state in states.items() if not any(record.get(name) == state for record in records)}


def trust(folder: Path, states: Mapping[str, FileState], marker: str) -> None:
    """Record that files were verified in these states. Warns on stderr if no record can be written."""
    content = json.dumps(states).encode()
    with suppress(OSError):
        write_bytes(folder / STATES, content)
        return
    for user_folder in _user_folders(create=True):
        with suppress(OSError):
            write_bytes(user_folder / f"{_key(folder, marker)}.json", content)
            return
    print(
        f"{folder}: is read in full at every start, because neither it nor the user's cache can be written; "
        "set XDG_CACHE_HOME to a folder that can be written",
        file=sys.stderr,
    )


@contextmanager
def one_at_a_time(folder: Path, marker: str) -> Iterator[None]:
    """Let the processes of a user verify a folder one after another, so that later ones trust what the first has read.

    Without a folder for the lock they do it all at once.
    """
    handle = None
    # The lock is not in the cache, because NFS refuses a lock on a file that cannot be written.
    for user_folder in _user_folders(create=True):
        with suppress(OSError):
            handle = os.open(user_folder / f"{_key(folder, marker)}.lock", os.O_CREAT | os.O_RDWR, 0o600)
            if lock(handle, wait=True):
                break
            os.close(handle)  # a file system without locks
            handle = None
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _key(folder: Path, marker: str) -> str:
    """Name of a record in a folder of the user: a hash of the path and of the state of the file `marker`."""
    # With the state, two mounts that give the same files different inodes have two records.
    return hashlib.sha256(json.dumps([str(folder.resolve()), file_state(folder / marker)]).encode()).hexdigest()[:32]


def _user_folders(create: bool = False) -> list[Path]:
    """Folders of the user for records, in the user's cache and among temporary files, as far as they exist.

    A folder that somebody else can write to is left out, because a record there might vouch for a damaged file.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    user = os.getuid() if hasattr(os, "getuid") else 0  # on Windows, the owner of every file is 0
    usable = []
    for path in (cache / RECORDS, Path(tempfile.gettempdir()) / f"{RECORDS}-{user}"):
        with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home folder
            path = path.expanduser()
            if create:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o022:
                usable.append(path)
    return usable


def _read(path: Path) -> dict[str, FileState]:
    """The states of a record, empty if it is missing or damaged."""
    try:
        states = json.loads(path.read_text(encoding="utf-8"))
        return {name: FileState(*state) for name, state in states.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
