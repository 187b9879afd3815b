"""Entries of the cache folder, built once for each fingerprint of the files, options and versions they depend on."""

from __future__ import annotations

import hashlib
import inspect
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers

from seqclf.config.build import generate, locate_generator
from seqclf.data.encoding.encoders import encoder_class
from seqclf.data.reading.sources import Source, SourceState, file_state, source_of, source_state
from seqclf.data.reading.tables import Table
from seqclf.data.schema.rows import rebatch
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.store import FORMAT, DamagedError
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError, first_line
from seqclf.settings.data_settings import DataOptions
from seqclf.system.atomic_files import DISK, PREFIX, explain_disk_errors, make_private, one_at_a_time, scratch_folder
from seqclf.system.version import __version__

NOT_CONTENT = ("cache_dir", "positive", "memory_limit")  # options that do not change the prepared data
LIBRARIES = (np, pa, duckdb, tokenizers)  # libraries of which a new version may parse or generate other data


def states_of(options: DataOptions, splits: Mapping[str, Source]) -> list[SourceState]:
    """Return the state of each source, a dict split → source, and of each file that other options name."""
    labels = source_of(options, "labels")
    all_sources = [*splits.values(), *([labels] if labels is not None else [])]
    states = [source_state(source) for source in all_sources]
    files = [path for spec in (options.fields or {}).values() for path in _option_files(spec)]
    files += [] if options.exclude is None else [options.exclude]
    if options.encoders is not None:
        files += sorted(map(str, Path(options.encoders).expanduser().glob("*.json")))
    return states + list(map(_option_file, files))


def changed_file(before: list[SourceState], after: list[SourceState]) -> str | None:
    """Return the path of a file that was changed, added or deleted, "" for a changed option, None if nothing changed.

    Files are compared by size, modification time and inode, not by the inode change time, which a backup changes too.
    The fingerprint covers it, so a file whose modification time was set back is found in the next run.
    """
    if [source.options for source in before] != [source.options for source in after]:
        return ""
    return min((path for path, *_ in _contents(before) ^ _contents(after)), default=None)


def _contents(states: list[SourceState]) -> set[tuple[str, int, int, int]]:
    return {(file.path, file.size, file.modified_ns, file.inode) for source in states for file in source.files}


def fingerprint(options: DataOptions, states: list[SourceState]) -> str:
    """Return 16 hexadecimal digits that identify the prepared data by its files, options and versions."""
    keys = {key: value for key, value in options.model_dump().items() if key not in NOT_CONTENT}
    versions = [__version__, FORMAT, *(library.__version__ for library in LIBRARIES)]
    parts = [versions, keys, states]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _option_files(spec: Any) -> list[str]:
    """Return the files that the options of a field name, such as word vectors."""
    if not isinstance(spec, Mapping):
        return []
    try:
        names = encoder_class(spec.get("kind")).file_options
    except InputError:  # the field kind is unknown, which is reported later when the data is read
        return []
    return [spec[name] for name in names if isinstance(spec.get(name), str)]


def _option_file(path: str) -> SourceState:
    file = Path(path).expanduser()
    return SourceState((path,), (file_state(file, path),) if file.is_file() else ())


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """Hash the source of the generator function and of its module, without what they import.

    None if there is no source, as of a compiled function.
    """
    function = inspect.unwrap(locate_generator(generator))
    module = sys.modules.get(str(generator["_target_"]).rpartition(".")[0])
    sources_of = []
    for part in (function, module):
        with suppress(OSError, TypeError):  # a cell of a notebook has a function with a source, and no module
            sources_of.append(inspect.getsource(part))  # type: ignore[arg-type]
    return hashlib.sha256("\0".join(sources_of).encode()).hexdigest() if sources_of else None


CONTENT = "content"  # sub-folder of a scratch folder that becomes the cache entry
Opened = TypeVar("Opened")


class CacheEntry:
    """An entry of the cache folder `cache`. A damaged entry is built again."""

    def __init__(self, cache: Path, name: str):
        self.cache = cache
        self.folder = cache / name

    def reuse_or_build(self, open_folder: Callable[[Path], Opened], build: Callable[[Path], None]) -> Opened | None:
        """Return the result of `open_folder(folder)` for an entry that exists, or else build it and return None.

        `open_folder` raises DamagedError for a damaged folder, which is built again. `build` fills the sub-folder
        CONTENT of a temporary one, while a lock lets other runs wait. Raises InputError if it cannot be written.
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
            if not self.folder.is_dir():
                raise

    def _explain(self, error: OSError) -> None:
        """Raise InputError if `error` is a disk error in the cache folder, or if a file blocks the path of a folder."""
        path = Path(str(error.filename or self.cache))
        is_file = isinstance(error, (FileExistsError, NotADirectoryError))  # a file exists where a folder is needed
        if (error.errno in DISK or is_file) and self.cache in (path, *path.parents):
            problem = f"cannot be written ({error.strerror or error})"
            remedy = "free space there, or name another folder"
            raise InputError(f"data.cache_dir={self.cache}", problem, remedy) from None


# Files of `data.generator`, written once for its arguments and its code.


def with_generated(options: DataOptions) -> DataOptions:
    """Run `data.generator`, if set, and return options whose splits without a file have the generated files."""
    if (generator := options.generator) is None:
        return options
    # Another version of NumPy may draw other random numbers from the same seed.
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


# Tables in memory are written to files, whose name is the hash of their content, so that equal tables share a file and
# a prepared dataset, and the path in config.yaml identifies the rows. Only the user can read one, as it is not encoded.

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
