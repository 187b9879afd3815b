"""Atomic writes, and locks on files and folders: a file appears under its final name only when the file is complete.

The content goes to a temporary file (`.seqclf-…`) in the same folder, so on the same file system, which is then
renamed. A process holds a lock (POSIX `flock`, released when it ends) on each, so that one without a lock was left by a
killed process and can be deleted; two containers may use the same process id. Windows has no `flock` and cannot rename
an open file: there, temporary files are not locked, and those of killed processes stay.
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

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Flags for `os.open`. With these flags, opening a symbolic link fails, and opening a FIFO does not wait. Windows has
# neither flag.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
PREFIX, SUFFIX = ".seqclf-", ".part"
UNFINISHED = f"{PREFIX}*{SUFFIX}"  # glob pattern for the names of temporary files
# Error numbers of disk errors that only the user can fix, such as a full disk or a missing permission.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
REMEDY = "free space there, or name another folder"


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield the path of a new temporary file in the same folder, and rename it to `path` after the block.

    It is flushed to disk before, and gets the mode of a file at `path`. After an error in the block, it is removed, and
    `path` is unchanged. Raises OSError if the disk cannot be written.
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
    """Write `text` to the file `path` atomically, in UTF-8, or raise InputError.

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
    """Yield a new temporary folder in `parent`, for its owner alone, and remove it at the end of the `with` block.

    `prefix`: start of its name, one for each purpose, because folders with it that a killed process left are removed.
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
    """Swap the names of two files or folders atomically, by renameat2 of Linux. Return False if it is not possible."""
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
    """Yield the path of a new temporary file or folder, which is locked until the end of the `with` block."""
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


def has_locks() -> bool:
    """Return True if the operating system has file locks. Some file systems do not support locks even then."""
    return fcntl is not None


def lock(handle: int, wait: bool = False) -> bool | None:
    """Take the exclusive lock of a file descriptor: True, False if another process holds it, None if there are none."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def is_at(handle: int, path: Path) -> bool:
    """Return True if the path still leads to what is open as `handle`, and is no link."""
    try:
        return path.lstat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Ensure that only one process at a time runs the `with` block, if `path` can be created and locked."""
    handle = None
    if has_locks():
        with suppress(OSError):
            handle = lock_file(path, wait=True)
    try:
        yield
    finally:
        if handle is not None:
            remove_lock(handle, path)


def lock_file(path: Path, wait: bool = False) -> int:
    """Create and lock a file, whose content stays, and return its file descriptor.

    Raises BlockingIOError if another process has locked it, without `wait`, or OSError if it cannot be created.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_CREAT | os.O_RDWR | NO_LINK, 0o666)
        except FileNotFoundError:  # another process has just removed the folder
            continue
        try:
            if lock(handle, wait) is False:
                raise BlockingIOError
            if is_at(handle, path):
                return handle
        except BaseException:  # for example, a signal handler raises an exception while this process waits
            os.close(handle)
            raise
        os.close(handle)  # another process deleted the file before this process locked it, so try again


def remove_lock(handle: int, path: Path) -> None:
    """Delete and unlock a lock file."""
    with suppress(OSError):
        path.unlink()  # delete before unlocking, so that a waiting process finds the file deleted
    os.close(handle)


def call_in_child(function: Callable[[], None]) -> None:
    """Register a function that is called in every process forked from this process. Windows has no fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
