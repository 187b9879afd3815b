"""Files and folders that appear under their name only when they are complete.

A temporary file lies beside its target, so that the final rename never crosses file systems. Its writer holds an
exclusive lock (`flock`) on it, which ends with the process: a temporary file without a lock was left by a run that was
killed. That holds across containers, where process numbers say nothing.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqclf.errors import InputError

SUFFIX = ".part"
# A disk that is full, read-only, over its quota or of somebody else: the user's to mend, wherever it comes up.
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG}
REMEDY = "free space there, or name another folder"


@contextmanager
def atomic_replace(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it replaces `path` at the end, after its content is on the disk.

    If anything goes wrong, the earlier file stays as it is and the temporary one is removed. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, f".{glob.escape(path.name)}.*{SUFFIX}")
    unfinished, lock = _create_locked(path)
    try:
        yield unfinished
        _flush(unfinished)
        unfinished.replace(path)
        _flush(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)
        os.close(lock)


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Replace `path` with a file that holds `content`. Raises OSError."""
    with atomic_replace(path) as unfinished, unfinished.open("wb") as file:
        file.write(content)


def write_output(path: Path, text: str) -> None:
    """Replace `path` with a UTF-8 file that holds `text`; an error of the disk is the user's to mend."""
    with explain_disk_errors(path):
        write_bytes(path, text.encode())


@contextmanager
def explain_disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into one line that names the file that was written."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); {REMEDY}") from None


@contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder in `parent` and remove it at the end; those of killed processes are removed first.

    Raises OSError where the folder cannot be made.
    """
    parent.mkdir(parents=True, exist_ok=True)
    sweep(parent, f"{glob.escape(prefix)}*")
    folder, lock = _create_locked_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep(folder: Path, pattern: str) -> None:
    """Delete the temporary files and folders in `folder` that no live process holds."""
    with suppress(OSError):  # what cannot be swept stays; a folder that cannot be read is reported by who writes to it
        for path in list(folder.glob(pattern)):
            with suppress(OSError):
                _sweep_one(path)


def _sweep_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        if not _try_lock(handle):
            return
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _create_locked(path: Path) -> tuple[Path, int]:
    """A new temporary file for `path`, and the handle that locks it."""
    while True:
        unfinished = path.with_name(f".{path.name}.{os.urandom(4).hex()}{SUFFIX}")
        handle = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        try:
            if _try_lock(handle) is not False and unfinished.exists():  # otherwise another process is sweeping it
                return unfinished, handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _create_locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and the handle that locks it."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # another process swept it before it was locked
        if _try_lock(handle) is not False and folder.exists():
            return folder, handle
        os.close(handle)


def _try_lock(handle: int) -> bool | None:
    """Lock without waiting. False: another process holds the lock; None: the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not path.is_dir():  # some file systems cannot sync folders
            raise error
    finally:
        os.close(handle)
