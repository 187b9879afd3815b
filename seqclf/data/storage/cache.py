"""Entries of the cache folder: folders that are built once, and get their final name when they are complete."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.config.build import generate
from seqclf.data.reading.tables import Table
from seqclf.data.schema.rows import rebatch
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.fingerprint import generator_code
from seqclf.data.storage.store import FORMAT, DamagedError
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError, first_line
from seqclf.settings.data import DataOptions
from seqclf.system.atomic_files import DISK, PREFIX, explain_disk_errors, make_private, scratch_folder
from seqclf.system.file_locks import one_at_a_time

CONTENT = "content"  # sub-folder of a scratch folder that becomes the cache entry
Opened = TypeVar("Opened")


class CacheEntry:
    """An entry of the cache folder `cache`. A damaged entry is built again."""

    def __init__(self, cache: Path, name: str):
        self.cache = cache
        self.folder = cache / name

    def reuse_or_build(self, open_folder: Callable[[Path], Opened], build: Callable[[Path], None]) -> Opened | None:
        """Return the result of `open_folder(folder)` for an entry that exists, or else build it and return None.

        `open_folder` raises DamagedError for a damaged folder, which is reported on stderr and built again. `build`
        fills the sub-folder CONTENT of the temporary folder `scratch`.

        A lock lets other processes wait, because several ranks or runs start at the same time. Raises InputError if the
        cache folder cannot be written.
        """
        with suppress(DamagedError):  # the folder is opened once more below, after this process has got the lock
            if self.folder.is_dir():
                return open_folder(self.folder)
        with one_at_a_time(self.cache / f"{PREFIX}{self.folder.name}.lock"):
            try:
                if self.folder.is_dir():
                    return open_folder(self.folder)
            except DamagedError as error:
                show_note(f"{self.folder}: the cached data is damaged and is made again ({error})")
                shutil.rmtree(self.folder, ignore_errors=True)
            try:
                with scratch_folder(self.cache, ".preparing-") as scratch:
                    build(scratch)
                    self._publish(scratch / CONTENT)
            except OSError as error:
                self._explain(error)
                raise
        return None

    def _publish(self, content: Path) -> None:
        make_private(content, self.cache)
        try:
            content.replace(self.folder)
        except OSError:
            # If another process has published the same entry in the meantime, that entry is used.
            if not self.folder.is_dir():
                raise

    def _explain(self, error: OSError) -> None:
        """Raise InputError if `error` is a disk error in the cache folder, or if a file blocks the path of a folder."""
        path = Path(str(error.filename or self.cache))
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))  # a file exists where a folder is needed
        if (error.errno in DISK or is_file) and self.cache in (path, *path.parents):
            raise InputError(
                f"data.cache_dir={self.cache}",
                f"cannot be written ({error.strerror or error})",
                "free space there, or name another folder",
            ) from None


# Files that `data.generator` writes. The files are written only once, as long as neither the generator's arguments nor
# its code change.


def with_generated(options: DataOptions) -> DataOptions:
    """Run `data.generator`, if set, and return options whose splits without a file have the generated files."""
    generator = options.generator
    if generator is None:
        return options
    # The cache key includes the NumPy version, because another version may draw other random numbers from the same
    # seed.
    parts = [FORMAT, dict(generator), generator_code(generator), np.__version__]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    entry = CacheEntry(Path(options.cache_dir).expanduser(), f"generated-{options.name}-{key}")

    def build(scratch: Path) -> None:
        content = scratch / CONTENT
        content.mkdir()
        generate(generator, content)

    entry.reuse_or_build(Path.is_dir, build)
    files = {name: str(entry.folder / f"{name}.parquet") for name in SPLITS if getattr(options, name) is None}
    return options.model_copy(update={"generator": None, **files})


# In-memory tables are written to files in the cache folder, so that training reads them like other files.
#
# The name of a table file is the hash of its content. Equal tables therefore share one table file and one prepared
# dataset. The path of the table file in a run's config.yaml identifies the training rows. Only the user can read a
# table file, because it holds raw data and not encoded data.

FOLDER = "tables"
ROW_GROUP = 122_880  # rows per row group of a Parquet file, as in DuckDB


def store_table(table: Table, cache: Path, where: str) -> Path:
    """Write a table that `tables.to_arrow` returned to a Parquet file in the cache, unless it exists. Returns its path.

    `where`: name of the table in errors.

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
        # An existing file is not replaced, because the fingerprint of the prepared data includes the times of the file.
        if not path.is_file() or path.stat().st_size != unfinished.stat().st_size:
            unfinished.chmod(0o600)
            unfinished.replace(path)
    return path


def _write(table: Table, path: Path, where: str) -> None:
    """Row groups of a fixed size make the file independent of the table's record batches."""
    record_batches = table.to_batches() if isinstance(table, pa.Table) else table
    rows = 0
    try:
        with pq.ParquetWriter(path, table.schema.remove_metadata(), compression="zstd") as writer:
            for record_batch in rebatch(record_batches, ROW_GROUP):
                rows += record_batch.num_rows
                writer.write_batch(record_batch, row_group_size=ROW_GROUP)
    except pa.ArrowException as error:
        problem = f"cannot be written as Parquet ({first_line(error)})"
        raise InputError(where, problem, "convert or drop the column") from None
    if not rows:
        raise InputError(where, "has no rows", "give a table with a row per sequence")
