"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as arrow

from seqclf.data.ragged import is_list
from seqclf.data.reading.format import Files, Format, TableSql, scan, sql_list
from seqclf.data.reading.tables import UNITS_PER_SECOND, plain_type
from seqclf.data.schema.casts import quote_identifier
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
        integers = [
            path for schema, paths in paths_of.items() if arrow.is_integer(schema.field(name).type) for path in paths
        ]
        if not integers or not any(map(arrow.is_floating, kinds)):
            continue
        most = 2**53 if pa.float64() in kinds else 2**24
        rounded = f"abs(CAST({quote_identifier(name)} AS HUGEINT)) > {most}"
        files = f"read_parquet({sql_list(integers)}, hive_partitioning = false, filename = true)"
        found = connection.execute(f"SELECT filename FROM {files} WHERE {rounded} LIMIT 1").fetchall()
        if found:
            raise InputError(found[0][0], f"column {name} has integers that the floats of other files round", REMEDY)
