"""Arrow files, in the IPC file format or stream format. Feather files have the file format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from seqclf.data.reading.format import ArrowFormat, Files, TableSql
from seqclf.data.reading.source_errors import NOT_UTF8
from seqclf.data.reading.tables import plain_batch, plain_types
from seqclf.data.schema.casts import FILE, quote_identifier
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

TABLE, NAMED_TABLE = "arrow_files", "named_arrow_files"
REMEDY = "write it again, in the IPC file format"
ARROW_FILE = "__filename"  # Arrow's name for the column with the path of each row's file


class Arrow(ArrowFormat):
    """Format of Arrow files. DuckDB reads Arrow files with the Arrow library.

    Files of the stream format, and columns of types that DuckDB does not read, are converted first.
    """

    endings: ClassVar[tuple[str, ...]] = (".arrow", ".feather", ".ipc")
    in_folder_per_class: ClassVar[bool] = False

    def read(self, path: Path) -> Iterator[pa.RecordBatch]:
        open_reader = pa.ipc.open_stream if _schema(path) is None else pa.ipc.open_file
        with pa.memory_map(str(path)) as mapped, open_reader(mapped) as file:
            names = plain_types(file.schema)
            count = getattr(file, "num_record_batches", None)  # a stream does not know it
            batches = file if count is None else map(file.get_batch, range(count))
            yield from (plain_batch(batch, names, str(path)) for batch in batches)

    def table(self, files: Files) -> TableSql:
        import pyarrow.dataset as arrow_dataset  # this import is slow, so it is done only when needed

        schemas = [_schema(path) for path in files.paths]
        for path, schema in zip(files.paths, schemas, strict=True):
            check_names(schema.names if schema is not None else _stream_names(path), str(path))
        if any(
            schema is None or plain_types(schema) != {field.name: field.type for field in schema} for schema in schemas
        ):
            return super().table(files)
        for path in files.paths:
            _check(path, path.stat().st_mtime)
        dataset = arrow_dataset.dataset([str(path) for path in files.paths], format="ipc")
        if ARROW_FILE in dataset.schema.names:
            raise InputError(files.paths[0], f"has a column {ARROW_FILE}, a name of Arrow's own", "rename it")
        files.connection.register(TABLE, dataset)
        # An Arrow scanner can return the path of each row's file, but it reads all columns. An Arrow dataset reads only
        # the columns that a query needs, but it cannot return the path.
        files.connection.register(NAMED_TABLE, dataset.scanner(columns=[*dataset.schema.names, ARROW_FILE]))
        named_sql = f"(SELECT * RENAME ({ARROW_FILE} AS {quote_identifier(FILE)}) FROM {NAMED_TABLE})"
        return lambda named_files: named_sql if named_files else TABLE


def _schema(path: Path) -> pa.Schema | None:
    """Return the schema of a file, or None if it has not the file format of Arrow."""
    with suppress(OSError, pa.ArrowException), pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
        return file.schema
    return None


def _stream_names(path: Path) -> list[str]:
    """Return the columns of a file of the stream format. Raises InputError for any other file."""
    with suppress(OSError, pa.ArrowException), pa.memory_map(str(path)) as mapped, pa.ipc.open_stream(mapped) as file:
        return file.schema.names
    raise InputError(path, "is not a readable Arrow file", REMEDY)


@lru_cache(maxsize=64)
def _check(path: Path, state: float) -> None:
    """Raise InputError if an Arrow file is damaged.

    DuckDB does not validate Arrow buffers, so a damaged file would crash the process. `state`: modification time of the
    file. An unchanged file is not checked again, because the result is cached.
    """
    try:
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
            for index in range(file.num_record_batches):
                file.get_batch(index).validate(full=True)
    except (OSError, pa.ArrowException) as error:
        if NOT_UTF8.search(str(error)):
            raise InputError(path, "holds text that is not valid utf-8", "write it as utf-8") from None
        raise InputError(path, "is not a readable Arrow file", REMEDY) from None
