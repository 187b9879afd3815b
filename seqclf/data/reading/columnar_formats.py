"""Formats of files that store typed columns: Parquet, and Arrow in the IPC file or stream format, such as Feather."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as arrow

from seqclf.data.ragged import is_list
from seqclf.data.reading.csv_dialect import copy_path, original
from seqclf.data.reading.format import Files, Format, TableSql, scan, sql_list
from seqclf.data.reading.source_errors import NOT_UTF8
from seqclf.data.reading.tables import UNITS_PER_SECOND, plain_batch, plain_type, plain_types
from seqclf.data.schema.casts import FILE, quote_identifier
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError, first_line

REMEDY = "write the column with one type"


class Parquet(Format):
    """Format of Parquet files, for which DuckDB also returns row numbers.

    If types differ, files are read with types that hold the values of all, because DuckDB casts to the types of the
    first file, which may round numbers and truncate times.
    """

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def table(self, files: Files) -> TableSql:
        paths_of: dict[pa.Schema, list[Path]] = {}
        for path in files.paths:
            paths_of.setdefault(_schema(path, path.stat().st_mtime_ns), []).append(path)
        options = dict(files.partitions)
        if len(paths_of) > 1:
            options["union_by_name"] = "true"
            _require_common_types(paths_of)
            _require_exact(paths_of, files.connection)
        read = partial(scan, "read_parquet", files.sql_list, options)
        if not (seconds := _durations(next(iter(paths_of)))):
            return read
        return lambda named_files: f"(SELECT * REPLACE ({', '.join(seconds)}) FROM {read(named_files)})"

    def with_row_numbers(self, table: str) -> str | None:
        return None if table.startswith("(") else f"{table[:-1]}, file_row_number = true)"


@lru_cache(maxsize=10_000)
def _schema(path: Path, changed: int) -> pa.Schema:
    """`changed`: modification time, as a key of the cache."""
    try:
        schema = pq.read_schema(path).remove_metadata()
        str(schema)  # decodes the names of columns and of the fields below them
    except UnicodeDecodeError:
        raise InputError(path, "has a column name that is not valid utf-8", "write it as utf-8") from None
    except pa.ArrowException as error:  # DuckDB's error message would not name the file
        raise InputError(path, f"cannot be read: {first_line(error)}", "replace the file") from None
    check_names(schema.names, str(path))
    return schema


def _durations(schema: pa.Schema) -> list[str]:
    """Return a REPLACE list that converts durations, which DuckDB reads as integers, to seconds."""
    replaced = []
    for field in schema:
        name, kind = quote_identifier(field.name), field.type
        unit = kind.value_type if is_list(kind) else kind
        if arrow.is_duration(unit):
            value = f"{'token' if is_list(kind) else name} / {UNITS_PER_SECOND[unit.unit]}::DOUBLE"
            value = f"list_transform({name}, lambda token: {value})" if is_list(kind) else value
            replaced.append(f"{value} AS {name}")
    return replaced


def _require_common_types(paths_of: Mapping[pa.Schema, Sequence[Path]]) -> None:
    """Raise InputError unless all files have the same columns, and types that one type can hold."""
    (first, (first_path, *_)), *others = paths_of.items()
    common = _plain(first)
    for schema, (path, *_) in others:
        if name := min(set(schema.names) ^ set(first.names), default=None):
            has, lacks = (path, first_path) if name in schema.names else (first_path, path)
            raise InputError(lacks, f"has no column {name}, which {has} has", "give files of the same columns")
        try:
            common = pa.unify_schemas([common, _plain(schema)], promote_options="permissive")
        except pa.ArrowException as error:
            reason = first_line(error).removeprefix("Unable to merge: ")
            raise InputError(path, f"differs from {first_path}: {reason}", REMEDY) from None


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def _require_exact(paths_of: Mapping[pa.Schema, Iterable[Path]], connection: duckdb.DuckDBPyConnection) -> None:
    """Raise InputError if one file has integers that the float type of another file cannot store exactly."""
    for name in next(iter(paths_of)).names:
        kinds = {schema.field(name).type for schema in paths_of}
        of_integers = (paths for schema, paths in paths_of.items() if arrow.is_integer(schema.field(name).type))
        integers = [path for paths in of_integers for path in paths]
        if not integers or not any(map(arrow.is_floating, kinds)):
            continue
        most = 2**53 if pa.float64() in kinds else 2**24
        rounded = f"abs(CAST({quote_identifier(name)} AS HUGEINT)) > {most}"
        files = f"read_parquet({sql_list(integers)}, hive_partitioning = false, filename = true)"
        found = connection.execute(f"SELECT filename FROM {files} WHERE {rounded} LIMIT 1").fetchall()
        if found:
            raise InputError(found[0][0], f"column {name} has integers that the floats of other files round", REMEDY)


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
        # Only a scanner returns the path of each row's file, and only a dataset reads no more columns than needed.
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
    """True if DuckDB can read a file as it is. Raises InputError if it is damaged, which would crash DuckDB."""
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
    copy = copy_path(path, files.temporary)
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
            problem = f"has not the columns of {original(str(paths[0]))}: {different}"
            raise InputError(original(str(path)), problem, "give files of the same columns")
