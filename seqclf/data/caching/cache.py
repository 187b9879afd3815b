"""Entries of the cache: folders that are built once and appear under their name only when they are complete."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from seqclf.data.caching.checksums import DamagedError
from seqclf.errors import InputError
from seqclf.system.atomic_files import DISK, scratch_folder

CONTENT = "content"  # the folder inside a scratch folder that becomes the entry
Opened = TypeVar("Opened")


class CacheEntry:
    """One folder of the cache at `cache`.

    A damaged folder is replaced, unless another process has replaced it in the meantime.
    """

    def __init__(self, cache: Path, name: str):
        self.cache = cache
        self.folder = cache / name
        self._damaged_inode: int | None = None

    def reuse(self, open_folder: Callable[[Path], Opened]) -> Opened | None:
        """Open the folder. Returns None if it does not exist, or if `open_folder` raises DamagedError.

        Damage is reported on stderr.
        """
        if not self.folder.is_dir():
            return None
        try:
            return open_folder(self.folder)
        except DamagedError as error:
            print(f"{self.folder}: the cached data is damaged and is made again ({error})", file=sys.stderr)
            with suppress(FileNotFoundError):
                self._damaged_inode = self.folder.stat().st_ino
            return None

    @contextmanager
    def build(self) -> Iterator[Path]:
        """Yield a scratch folder, and make its sub-folder CONTENT the entry if the block ends without an error.

        The scratch folder is deleted in any case. Raises InputError if the cache cannot be written.
        """
        try:
            with scratch_folder(self.cache, ".preparing-") as scratch:
                self._discard_damaged(scratch)
                yield scratch
                self._publish(scratch / CONTENT)
        except OSError as error:
            self._explain(error)
            raise

    def _discard_damaged(self, scratch: Path) -> None:
        with suppress(FileNotFoundError):
            # The inode tells the damaged folder from a good one that another process has put there meanwhile.
            if self._damaged_inode is not None and self.folder.stat().st_ino == self._damaged_inode:
                self.folder.replace(scratch / "damaged")
                shutil.rmtree(scratch / "damaged")

    def _publish(self, content: Path) -> None:
        try:
            content.replace(self.folder)
        except OSError:
            # The folder exists if another process has built the same entry in the meantime. Either copy will do.
            if not self.folder.is_dir():
                raise

    def _explain(self, error: OSError) -> None:
        """Raise InputError if `error` is the disk's, or the name's, of a path in the cache."""
        path = Path(str(error.filename or self.cache))
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))  # where a folder is needed
        if (error.errno in DISK or is_file) and self.cache in (path, *path.parents):
            raise InputError(
                f"data.cache_dir={self.cache}",
                f"cannot be written ({error.strerror or error})",
                "free space there, or name another folder",
            ) from None
