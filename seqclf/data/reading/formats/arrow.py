"""Arrow files, in the IPC file format or stream format. Feather files have the file format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from seqclf.data.reading import line_endings
from seqclf.data.reading.format import Files, Format, TableSql
from seqclf.data.reading.source_errors import NOT_UTF8
from seqclf.data.reading.tables import plain_batch, plain_types
from seqclf.data.schema.casts import FILE, quote_identifier
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

TABLE, NAMED_TABLE = "arrow_files", "named_arrow_files"
ARROW_FILE = "__filename"  # Arrow's name for the column with the path of each row's file


class Arrow(Format):
    """Format of Arrow files. Those of the stream format, or with types that DuckDB lacks, are converted first."""

    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")

    def readable(self, files: Files) -> list[Path]:
        return [path if _is_plain(path, path.stat().st_mtime) else _converted(path, files) for path in files.paths]

    def table(self, files: Files) -> TableSql:
        import pyarrow.dataset as arrow_dataset  # this import is slow, so it is done only when needed

        dataset = arrow_dataset.dataset([str(path) for path in files.paths], format="ipc")
        if ARROW_FILE in dataset.schema.names:
            raise InputError(files.paths[0], f"has a column {ARROW_FILE}, a name of Arrow's own", "rename it")
        _require_equal_columns(files.paths)
        files.connection.register(TABLE, dataset)
        # An Arrow scanner can return the path of each row's file, but it reads all columns. An Arrow dataset reads only
        # the columns that a query needs, but it cannot return the path.
        files.connection.register(NAMED_TABLE, dataset.scanner(columns=[*dataset.schema.names, ARROW_FILE]))
        named_sql = f"(SELECT * RENAME ({ARROW_FILE} AS {quote_identifier(FILE)}) FROM {NAMED_TABLE})"
        return lambda named_files: named_sql if named_files else TABLE


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file as a reader of the file format or of the stream format. Raises InputError if it is damaged."""
    try:
        with pa.memory_map(str(path)) as mapped:
            try:
                reader = pa.ipc.open_file(mapped)
            except pa.ArrowInvalid:
                mapped.seek(0)
                reader = pa.ipc.open_stream(mapped)
            with reader:
                yield reader
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        if getattr(error, "errno", None):  # an error of the disk, and not of Arrow
            raise
        if isinstance(error, UnicodeDecodeError) or NOT_UTF8.search(str(error)):
            raise InputError(path, "holds text that is not valid utf-8", "write it as utf-8") from None
        raise InputError(path, "is not a readable Arrow file", "write it again, in the IPC file format") from None


def _batches(reader: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(reader, pa.RecordBatchFileReader):
        return map(reader.get_batch, range(reader.num_record_batches))
    return reader


@lru_cache(maxsize=64)
def _is_plain(path: Path, state: float) -> bool:
    """True if DuckDB can read a file as it is. Raises InputError if it is damaged, which would crash DuckDB.

    `state`: modification time, as a key of the cache.
    """
    with _opened(path) as reader:
        check_names(reader.schema.names, str(path))
        types = {field.name: field.type for field in reader.schema}
        if not isinstance(reader, pa.RecordBatchFileReader) or plain_types(reader.schema) != types:
            return False
        for record_batch in _batches(reader):
            record_batch.validate(full=True)
        return True


def _converted(path: Path, files: Files) -> Path:
    """Return a copy of a file in the file format, with types that DuckDB reads."""
    copy = line_endings.copy_path(path, files.temporary)
    with _opened(path) as reader:
        types = plain_types(reader.schema)
        with pa.ipc.new_file(str(copy), pa.schema(list(types.items()))) as writer:
            for record_batch in _batches(reader):
                writer.write_batch(plain_batch(record_batch, types, str(path)))
    return copy


def _require_equal_columns(paths: Sequence[Path]) -> None:
    described = []
    for path in paths:
        with _opened(path) as reader:
            described.append({f"{field.name} ({field.type})" for field in reader.schema})
        if described[-1] != described[0]:
            different = ", ".join(sorted(described[-1] ^ described[0]))
            raise InputError(
                line_endings.original(str(path)),
                f"has not the columns of {line_endings.original(str(paths[0]))}: {different}",
                "give files of the same columns",
            )
