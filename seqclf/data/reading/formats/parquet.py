"""Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as arrow

from seqclf.data.ragged import is_list
from seqclf.data.reading.format import Files, Format, TableSql, describe_columns, scan
from seqclf.data.reading.tables import UNITS_PER_SECOND
from seqclf.data.schema.casts import quote_identifier
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError, first_line

EXACT_BITS = {16: 11, 32: 24, 64: 53}  # bits of a float type → bits of the largest integers that are stored exactly
REMEDY = "write the column with one type"


class Parquet(Format):
    """Format of Parquet files. For Parquet files, DuckDB can also return row numbers.

    The files of one source must have the same columns. By default, DuckDB casts the values of all files to the types of
    the first file. A cast to the types of the first file may round numbers and truncate times. If the types of the
    files differ, the files are therefore read with types that can hold the values of all files.
    """

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    remote: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        if files.paths:
            options = {"union_by_name": "true"} if _types_differ(files.paths) else {}
        else:
            options = {}
            _check_remote(files)
        read = partial(scan, "read_parquet", files.sql_list, {**files.partitions, **options})
        if not (seconds := _durations(files.paths)):
            return read
        return lambda named_files: f"(SELECT * REPLACE ({', '.join(seconds)}) FROM {read(named_files)})"

    def with_row_numbers(self, table: str) -> str | None:
        return None if table.startswith("(") else f"{table[:-1]}, file_row_number = true)"


def _durations(paths: Sequence[Path]) -> list[str]:
    """Return a REPLACE list that converts durations, which DuckDB reads as integers, to seconds."""
    replaced = []
    for field in _schema(paths[0], paths[0].stat().st_mtime_ns) if paths else ():
        name, kind = quote_identifier(field.name), field.type
        unit = kind.value_type if is_list(kind) else kind
        if arrow.is_duration(unit):
            value = f"{'token' if is_list(kind) else name} / {UNITS_PER_SECOND[unit.unit]}::DOUBLE"
            value = f"list_transform({name}, lambda token: {value})" if is_list(kind) else value
            replaced.append(f"{value} AS {name}")
    return replaced


def _check_remote(files: Files) -> None:
    """Raise InputError if the column types of the files at several URLs differ.

    Local files may have different types, because the statistics of local files are checked for values that would be
    rounded.
    """
    described = [
        describe_columns(files.connection, scan("read_parquet", files.sql_list, options, False))
        for options in ({}, {"union_by_name": "true"})
    ]
    for name, kind in described[1].items():
        if described[0].get(name) != kind:
            where = f"{files.source.key}={files.source.path}"
            raise InputError(where, f"the type of column {name} differs between the files", REMEDY)


def _types_differ(paths: Sequence[Path]) -> bool:
    """Return True if two files have different schemas.

    Raises InputError if the types of a column have no common type.
    """
    first = _schema(paths[0], paths[0].stat().st_mtime_ns)
    check_names(first.names, str(paths[0]))
    others: dict[pa.Schema, Path] = {}  # schema other than the first file's → one file that has it
    for path in paths[1:]:
        schema = _schema(path, path.stat().st_mtime_ns)
        if not schema.equals(first):
            others.setdefault(schema, path)
    for schema, path in others.items():
        if set(schema.names) != set(first.names):
            name = min(set(schema.names) ^ set(first.names))
            has, lacks = (path, paths[0]) if name in schema.names else (paths[0], path)
            raise InputError(lacks, f"has no column {name}, which {has} has", "give files of the same columns")
    for name in first.names if others else ():
        _check_column(name, {first.field(name).type: paths[0]} | {s.field(name).type: p for s, p in others.items()})
        if any(arrow.is_floating(s.field(name).type) for s in (first, *others)):
            _check_exact(name, paths)
    return bool(others)


@lru_cache(maxsize=10_000)
def _schema(path: Path, changed: int) -> pa.Schema:
    """Return the schema of a file. `changed`: modification time of the file.

    An unchanged file is not read again, because the schema is cached.
    """
    try:
        return pq.read_schema(path).remove_metadata()
    except pa.ArrowException as error:  # DuckDB's error message would not name the file
        raise InputError(path, f"cannot be read: {first_line(error)}", "replace the file") from None


def _check_column(name: str, types: dict[pa.DataType, Path]) -> None:
    """Raise InputError if the types of a column are of different families, such as numbers and texts.

    `types`: dict type → path of one file in which the column has this type.
    """
    families: dict[str, tuple[pa.DataType, Path]] = {}
    for kind, path in types.items():
        if (family := _family(kind)) is not None:
            families.setdefault(family, (kind, path))
    if len(families) > 1:
        (kind, path), (other, other_path), *_ = families.values()
        raise InputError(other_path, f"column {name} is of type {other}, but of type {kind} in {path}", REMEDY)


def _family(kind: pa.DataType) -> str | None:
    """Return the name of the family of a type, or None for the null type.

    If two columns have types of one family, DuckDB reads both with a type that holds all their values.
    """
    if arrow.is_dictionary(kind):
        return _family(kind.value_type)
    if arrow.is_null(kind):
        return None
    if arrow.is_integer(kind) or arrow.is_floating(kind) or arrow.is_decimal(kind):
        return "number"
    if arrow.is_string(kind) or arrow.is_large_string(kind) or arrow.is_string_view(kind):
        return "text"
    if arrow.is_date(kind) or (arrow.is_timestamp(kind) and kind.tz is None):
        return "time"
    if arrow.is_timestamp(kind):
        return "time with a zone"
    if arrow.is_list(kind) or arrow.is_large_list(kind) or arrow.is_fixed_size_list(kind):
        return f"list of {_family(kind.value_type)}"
    return str(kind)


def _check_exact(name: str, paths: Sequence[Path]) -> None:
    """Raise InputError if one file has integers that the float type of another file cannot store exactly."""
    types = {path: _schema(path, path.stat().st_mtime_ns).field(name).type for path in paths}
    bits = max(kind.bit_width for kind in types.values() if arrow.is_floating(kind))
    most = 2 ** EXACT_BITS[bits]
    for path, kind in types.items():
        if arrow.is_integer(kind) and kind.bit_width > EXACT_BITS[bits] and not _is_within(path, name, most):
            floating = next(other for other, kind in types.items() if arrow.is_floating(kind))
            problem = f"column {name} has integers that the {types[floating]} of {floating} would round"
            raise InputError(path, problem, REMEDY)


def _is_within(path: Path, name: str, most: int) -> bool:
    """Return True if the statistics of an integer column show that no absolute value is above `most`."""
    metadata = pq.read_metadata(path)
    column = next(index for index in range(metadata.num_columns) if metadata.schema.column(index).path == name)
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not (statistics.has_min_max or statistics.null_count == statistics.num_values):
            return False
        if statistics.has_min_max and max(-statistics.min, statistics.max) > most:
            return False
    return True
