"""Files and folders that appear under their name only when they are complete.

A temporary file is in the folder of its target, so that the final rename never crosses file systems. Its name begins
with `.seqclf-`, so that it is told from the files of others. Its writer holds an exclusive lock (`flock`) on it, which
ends with the process: a temporary file without a lock was left by a run that was killed. This also works across
containers, where process ids mean nothing. Windows has no such lock, and renames no open file: nothing is held there,
and nothing is swept.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError
from seqclf.system.file_locks import NO_LINK, has_locks, is_at, lock

PREFIX, SUFFIX = ".seqclf-", ".part"
UNFINISHED = f"{PREFIX}*{SUFFIX}"  # names of temporary files
# A disk that is full, read-only, over its quota or not ours: errors that only the user can fix, wherever they occur.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
REMEDY = "free space there, or name another folder"


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; it replaces `path` at the end, after its content is on the disk.

    If anything fails, the earlier file stays as it is and the temporary one is removed. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, f"{PREFIX}{glob.escape(path.name)}.*{SUFFIX}")
    unfinished, held = _create_locked(path)
    try:
        yield unfinished
        _flush(unfinished)
        unfinished.replace(path)
        _flush(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)
        _release(held)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace `path` with a file that holds `content`. Raises OSError."""
    with atomic_replace(path) as unfinished, unfinished.open("wb") as file:
        file.write(content)


def write_output(path: Path, text: str) -> None:
    """Replace `path` with a UTF-8 file that holds `text`. Raises InputError, which names the file, on disk errors.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_output(Path(folder) / "new" / "metrics.json", "{}")
    ...     [str(path.relative_to(folder)) for path in Path(folder).rglob("*")]
    ['new', 'new/metrics.json']
    """
    with explain_disk_errors(path):
        write_bytes(path, text.encode())


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into one line that names the file that was written."""
    try:
        yield
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror or error})", REMEDY) from None


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `parent` and remove it at the end. Those of killed processes are removed first.

    `prefix`: tells folders of one purpose from others; all names begin with PREFIX. Raises OSError if the folder cannot
    be created.
    """
    prefix = PREFIX + prefix.lstrip(".")
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, f"{glob.escape(prefix)}*")
    folder, held = _create_locked_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _release(held)


def exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two files or folders in one step. False, and nothing done, on systems that cannot.

    Linux can (renameat2), on most of its file systems.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchanging = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of the system's headers
    return rename is not None and rename(here, os.fsencode(first), here, os.fsencode(second), exchanging) == 0


def sweep(folder: Path, pattern: str) -> None:
    """Delete the temporary files and folders in `folder` that no live process holds."""
    if not has_locks():
        return
    with suppress(OSError):  # a folder that cannot be read is reported by the code that writes to it
        for path in list(folder.glob(pattern)):
            with suppress(OSError):
                _delete_unlocked(path)


def _delete_unlocked(path: Path) -> None:
    """Delete a file or folder, unless a live process holds its lock."""
    handle = os.open(path, os.O_RDONLY | NO_LINK)
    try:
        if not lock(handle) or not is_at(handle, path):
            return
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(mode):
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _release(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


def _create_locked(path: Path) -> tuple[Path, int | None]:
    """Create a temporary file for `path`. Return it and the handle that locks it, None on a system without locks."""
    while True:
        unfinished = path.with_name(f"{PREFIX}{path.name}.{os.urandom(4).hex()}{SUFFIX}")
        handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        if not has_locks():
            os.close(handle)
            return unfinished, None
        try:
            if lock(handle) is not False and unfinished.exists():  # otherwise another process is deleting it
                return unfinished, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _create_locked_folder(parent: Path, prefix: str) -> tuple[Path, int | None]:
    """Create a folder. Return it and the handle that locks it, None on a system without locks."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        if not has_locks():
            return folder, None
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process deleted it before it was locked
        if lock(handle) is not False and folder.exists():
            return folder, handle
        os.close(handle)


def _flush(path: Path) -> None:
    """Wait until the content of a file, or the list of a folder, is on the disk."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows syncs no file opened for reading
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not is_folder:  # some file systems cannot sync folders, and Windows opens none
            raise
