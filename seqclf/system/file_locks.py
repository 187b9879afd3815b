"""Locks on open files and folders, which end with the process that holds them.

The locks are POSIX `flock` locks. Windows has none, so nothing is locked there: two runs in one folder go unnoticed,
and temporary files of killed runs stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# Flags that open no link of somebody else and wait for no writer of a FIFO. Windows has neither of them.
NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def has_locks() -> bool:
    """Return whether the system has locks. A file system may still lack them."""
    return fcntl is not None


def lock(handle: int, wait: bool = False) -> bool | None:
    """Lock a file or folder for this process alone.

    Returns False if another process holds the lock and `wait` is false, None if the system or the file system has no
    locks.
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
    """Return True if `path` is the open file or folder itself, and not a link, another one or nothing."""
    try:
        return path.lstat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process at a time run the block. The others wait at the lock file `path`, which is removed at the end.

    Where it cannot be created or locked, nothing is held.
    """
    handle = _lock_file(path)
    try:
        yield
    finally:
        if handle is not None:
            with suppress(OSError):
                path.unlink()  # before the lock ends, so that those who waited see that it is gone
            os.close(handle)


def _lock_file(path: Path) -> int | None:
    """Create and lock a file, and return its handle, None where that cannot be done."""
    while has_locks():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_CREAT | os.O_RDWR | NO_LINK, 0o666)
        except OSError:
            return None
        try:
            held = lock(handle, wait=True)
            if held and is_at(handle, path):
                return handle
        except BaseException:  # of a signal, which ends the wait
            os.close(handle)
            raise
        os.close(handle)
        if not held:
            return None
    return None


def call_in_child(function: Callable[[], None]) -> None:
    """Call a function in every process that is forked from this one. Windows forks none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
