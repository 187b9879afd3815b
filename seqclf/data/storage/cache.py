"""Entries of the cache: folders that are built once and appear under their name only when they are complete."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.config.targets import generate
from seqclf.data.options import DataOptions
from seqclf.data.reading.tables import Table
from seqclf.data.schema.rows import rebatch
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.checksums import DamagedError, verify, write_checksums
from seqclf.data.storage.fingerprint import generator_code
from seqclf.errors import InputError
from seqclf.system.atomic_files import DISK, PREFIX, explain_disk_errors, scratch_folder
from seqclf.system.file_locks import one_at_a_time

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
        if not self.folder.is_dir() or self._is_damaged():
            return None
        try:
            return open_folder(self.folder)
        except DamagedError as error:
            print(f"{self.folder}: the cached data is damaged and is made again ({error})", file=sys.stderr)
            with suppress(FileNotFoundError):
                self._damaged_inode = self.folder.stat().st_ino
            return None

    def reuse_or_build(self, open_folder: Callable[[Path], Opened], build: Callable[[Path], None]) -> Opened | None:
        """Return `reuse(open_folder)`, or None after `build(scratch)` has made the entry.

        One process builds an entry at a time, and those that waited for it reuse what it built: the ranks of a training
        and the runs of a multirun start together. `build` fills the sub-folder CONTENT of the folder `scratch`.
        """
        opened = self.reuse(open_folder)
        if opened is None:
            with one_at_a_time(self.cache / f"{PREFIX}{self.folder.name}.lock"):
                opened = self.reuse(open_folder)
                if opened is None:
                    with self.build() as scratch:
                        build(scratch)
        return opened

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

    def _is_damaged(self) -> bool:
        # The inode tells the damaged folder from a good one that another process has put there meanwhile.
        with suppress(FileNotFoundError):
            return self._damaged_inode is not None and self.folder.stat().st_ino == self._damaged_inode
        return False

    def _discard_damaged(self, scratch: Path) -> None:
        with suppress(FileNotFoundError):
            if self._is_damaged():
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


# Files of `data.generator`: written once per set of arguments and version of the generator's code.


def with_generated(options: DataOptions) -> DataOptions:
    """Run `data.generator`, if one is set, and return options that name its files as the sources of all splits.

    A source that the options name already stays.
    """
    generator = options.generator
    if generator is None:
        return options
    # NumPy's version counts, because it may change what a generator draws from the same seed.
    parts = [dict(generator), generator_code(generator), np.__version__]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    entry = CacheEntry(Path(options.cache_dir).expanduser(), f"generated-{options.name}-{key}")

    def is_intact(folder: Path) -> bool:
        verify(folder, options.verify_cache)
        return True

    def build(scratch: Path) -> None:
        content = scratch / CONTENT
        content.mkdir()
        generate(generator, content)
        write_checksums(content, {})  # the generator has written its files by itself, so they are read to be hashed

    entry.reuse_or_build(is_intact, build)
    files = {name: str(entry.folder / f"{name}.parquet") for name in SPLITS if getattr(options, name) is None}
    return options.model_copy(update={"generator": None, **files})


# Tables in memory written to the cache, so that training reads them as it reads any file.
#
# The name of a file is the hash of its content. So the same table is prepared once, and the path in a run's config.yaml
# names exactly the rows that trained it. Only the user may read the files, as the prepared data next to them is encoded
# and these are not.

FOLDER = "tables"
ROW_GROUP = 122_880  # rows: one row group of DuckDB


def store_table(table: Table, cache: Path, where: str) -> Path:
    """Write a table of `to_arrow` to a Parquet file in the cache, unless it is there. Returns the path.

    `where`: name of the table, for errors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = store_table(pa.table({"x": [1]}), Path(folder), "data")
    ...     first == store_table(pa.table({"x": [1]}), Path(folder), "data"), first.suffix
    (True, '.parquet')
    """
    folder = cache / FOLDER
    with explain_disk_errors(folder), scratch_folder(folder, ".writing-") as scratch:
        unfinished = scratch / "table.parquet"
        _write(table, unfinished, where)
        with unfinished.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        path = folder / f"{name}.parquet"
        # A file that is there keeps its times, which the fingerprint of the prepared data holds.
        if not path.is_file() or path.stat().st_size != unfinished.stat().st_size:
            unfinished.chmod(0o600)
            unfinished.replace(path)
    return path


def _write(table: Table, path: Path, where: str) -> None:
    """Write row groups of a fixed size: the same rows give the same file, however they are cut."""
    record_batches = table.to_batches() if isinstance(table, pa.Table) else table
    rows = 0
    try:
        with pq.ParquetWriter(path, table.schema.remove_metadata(), compression="zstd") as writer:
            for record_batch in rebatch(record_batches, ROW_GROUP):
                rows += record_batch.num_rows
                writer.write_batch(record_batch, row_group_size=ROW_GROUP)
    except pa.ArrowException as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(where, f"cannot be written as Parquet ({reason})", "convert or drop the column") from None
    if not rows:
        raise InputError(where, "has no rows", "give a table with a row per sequence")
