"""Locks on open files and folders, which end with the process that holds them.

The locks are POSIX `flock` locks. Windows has none, so nothing is locked there: two runs in one folder go unnoticed,
and temporary files of killed runs stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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


def call_in_child(function: Callable[[], None]) -> None:
    """Call a function in every process that is forked from this one. Windows forks none."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)
