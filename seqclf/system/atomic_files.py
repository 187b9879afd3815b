"""Atomic writes: a file appears under its final name only when the file is complete.

The content is written to a temporary file, which is then renamed. The temporary file is created in the folder of the
final file, so that both are on one file system. The name of a temporary file begins with `.seqclf-`, so that other
programs do not use the same name.

A process holds an exclusive lock (`flock`) on each temporary file that it writes. The operating system releases the
lock when the process ends. A temporary file without a lock was therefore left by a killed process, and can be deleted.
Locks are used instead of process ids, because two containers may use the same process id. Windows has no `flock` and
cannot rename an open file. On Windows, temporary files are therefore not locked, and temporary files of killed
processes are not deleted.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError
from seqclf.system.file_locks import NO_LINK, has_locks, is_at, lock

PREFIX, SUFFIX = ".seqclf-", ".part"
UNFINISHED = f"{PREFIX}*{SUFFIX}"  # glob pattern for the names of temporary files
# Error numbers of disk errors that only the user can fix, such as a full disk or a missing permission.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
REMEDY = "free space there, or name another folder"


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield the path of a new temporary file, and rename the file to `path` at the end of the `with` block.

    The temporary file is in the folder of `path`. The content is flushed to disk before the rename. If a file already
    exists at `path`, the new file gets its mode. If the `with` block raises an error, the temporary file is removed,
    and a file that already exists at `path` is unchanged. Raises OSError if the disk cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, f"{PREFIX}{glob.escape(path.name)}.*{SUFFIX}")

    def create() -> Path:
        unfinished = path.with_name(f"{PREFIX}{path.name}.{os.urandom(4).hex()}{SUFFIX}")
        mode = 0o600 if path.exists() else 0o666
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))
        return unfinished

    with _created(create) as unfinished:
        try:
            yield unfinished
            _flush(unfinished)
            keep_mode(path, unfinished)
            unfinished.replace(path)
            _flush(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)


def keep_mode(earlier: Path, later: Path) -> None:
    """Give the file or folder `later` the mode of the one that it will replace, if there is an earlier one."""
    with suppress(OSError):  # some file systems have no modes
        later.chmod(later.stat().st_mode & 0o7000 | earlier.stat().st_mode & 0o777)


def make_private(folder: Path, parent: Path) -> None:
    """Let only the owner enter a folder, which holds copies of the user's data and is or will be in `parent`.

    If a group may write to `parent`, as to a shared cache, the group may enter the folder too.
    """
    mode = parent.stat().st_mode
    with suppress(OSError):
        folder.chmod(mode & 0o770 if mode & stat.S_IWGRP and not mode & stat.S_ISVTX else 0o700)


def private_folder(path: Path) -> None:
    """Create a folder for copies of the user's data (see `make_private`), unless the folder exists."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)  # closed even if the process is killed before the next line
        make_private(path, path.parent)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write `content` to the file `path` atomically. Raises OSError if the file cannot be written."""
    with atomic_replace(path) as unfinished, unfinished.open("wb") as file:
        file.write(content)


def write_output(path: Path, text: str) -> None:
    """Write `text` to the file `path` atomically, in UTF-8. Raises InputError if the file cannot be written.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_output(Path(folder) / "new" / "metrics.json", "{}")
    ...     [str(path.relative_to(folder)) for path in Path(folder).rglob("*")]
    ['new', 'new/metrics.json']
    """
    with explain_disk_errors(path):
        write_bytes(path, text.encode())


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the `with` block into an InputError that names the file `path`."""
    try:
        yield
    except OSError as error:
        raise InputError(path, f"cannot be written ({error.strerror or error})", REMEDY) from None


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new temporary folder in `parent`, and remove the folder at the end of the `with` block.

    Only the owner of the folder can read the folder, whatever the modes of the files in the folder.

    `prefix`: start of the folder name, after PREFIX. Each purpose needs its own `prefix`, because folders with the same
    `prefix` that a killed process left in `parent` are removed first. Raises OSError if the folder cannot be created.
    """
    prefix = PREFIX + prefix.lstrip(".")
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, f"{glob.escape(prefix)}*")
    with _created(lambda: Path(tempfile.mkdtemp(dir=parent, prefix=prefix))) as folder:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def exchange(first: Path, second: Path) -> bool:
    """Swap the names of two files or folders atomically. Return False if the swap is not possible.

    The swap needs the Linux system call renameat2, which works on most Linux file systems.
    """
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchanging = -100, 2  # constants AT_FDCWD and RENAME_EXCHANGE from the Linux headers
    return rename is not None and rename(here, os.fsencode(first), here, os.fsencode(second), exchanging) == 0


def sweep(folder: Path, pattern: str) -> None:
    """Delete all unlocked files and folders in `folder` whose names match `pattern`."""
    if not has_locks():
        return
    with suppress(OSError):  # ignore an unreadable folder here, because the later write reports it
        for path in list(folder.glob(pattern)):
            with suppress(OSError):
                _delete_unlocked(path)


def _delete_unlocked(path: Path) -> None:
    """Delete a file or folder, unless a running process has locked that file or folder."""
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


@contextmanager
def _created(create: Callable[[], Path]) -> Iterator[Path]:
    """Yield the path of a new temporary file or folder, which is locked until the end of the `with` block.

    `create`: function that creates a file or folder of a new name, and returns its path.
    """
    while True:
        path = create()
        if not has_locks():
            yield path
            return
        try:
            handle = os.open(path, os.O_RDONLY | NO_LINK)
        except FileNotFoundError:
            continue  # another process deleted the path before this process locked it
        try:
            if lock(handle) is not False and path.exists():  # otherwise another process deletes the path
                yield path
                return
        finally:
            os.close(handle)


def _flush(path: Path) -> None:
    """Flush the content of a file to disk, or the list of entries of a folder."""
    is_folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows cannot sync a read-only file
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        if not is_folder:  # some file systems cannot sync a folder, and Windows cannot open a folder
            raise
