"""File locks (POSIX `flock`) on files and folders, released when the process ends. Windows has none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Flags for `os.open`. With these flags, opening a symbolic link fails, and opening a FIFO does not wait. Windows has
# neither flag.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def has_locks() -> bool:
    """Return True if the operating system has file locks. Some file systems do not support locks even then."""
    return fcntl is not None


def lock(handle: int, wait: bool = False) -> bool | None:
    """Take the exclusive lock of an open file or folder, whose file descriptor is `handle`.

    Returns True if it was taken, False if another process holds it and `wait` is false, and `None` if the operating
    system or the file system does not support locks.
    """
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
    """Return True if the path still leads to the file or folder that is open as `handle`. Return False for a link."""
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
    """Create and lock a file, and return its file descriptor. Its folder is created too, and its content stays.

    Raises BlockingIOError if another process has locked the file and `wait` is false, or OSError if it cannot be
    created or is a link. On a system or a file system without locks, it is not locked.
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
