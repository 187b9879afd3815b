"""Conversion of in-memory tables to Arrow tables with plain column types.

In-memory tables are Arrow tables and data frames of pandas and polars. This module imports neither pandas nor polars.
The type of a data frame shows whether it is a data frame of pandas or polars. Any other object that has an Arrow stream
(`__arrow_c_stream__`), such as a DuckDB relation, is read from this stream.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

Table: TypeAlias = pa.Table | pa.RecordBatchReader
COLUMNS = (str, bytes, Mapping, list, tuple, np.ndarray, pa.Array, pa.ChunkedArray)  # types that are not tables
# Arrow type → pandas type that can hold missing values.
NULLABLE = {f"{u}int{bits}": f"{u.upper()}Int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)} | {
    "bool": "boolean"
}
UNITS_PER_SECOND = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}


def is_table(data: Any) -> bool:
    """Return True for a data frame, an Arrow table or a record batch reader. Return False for a single column.

    >>> is_table(pa.table({"x": [1]})), is_table(pa.array([1])), is_table([{"x": 1}])
    (True, False, False)
    """
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return True
    if isinstance(data, COLUMNS):
        return False
    # `columns` is checked last, because reading this attribute of a polars LazyFrame runs a query.
    return (hasattr(data, "__arrow_c_stream__") or is_pandas(data)) and hasattr(data, "columns")


def is_pandas(data: Any) -> bool:
    """Return True for an object of pandas, or of a package that extends pandas."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)


def is_polars(data: Any) -> bool:
    """Return True for an object of polars."""
    return type(data).__module__.partition(".")[0] == "polars"


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of a table, and for a pandas table also the names of the index levels.

    `to_arrow` may convert index levels to columns.
    """
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return data.schema.names
    levels = data.index.names if is_pandas(data) else []
    return [*map(str, data.columns), *(str(name) for name in levels if name is not None)]


def to_arrow(
    data: Any, where: str, index_levels: Collection[str] = (), columns: Collection[str] | None = None
) -> Table:
    """Convert a table to an Arrow table with types that both DuckDB and Parquet support.

    Categories are converted to their values, and durations to seconds. For a record batch reader, the result is also a
    record batch reader, whose rows can be read only once. Raises InputError with the name of a column whose cells have
    no Arrow type.

    `where`: name of the table in error messages. `index_levels`: names of the index levels of a pandas table that are
    converted to columns. An index level is left out if a column has the same name. `columns`: names of the columns that
    are converted, or None for all columns. A name that is not in the table is ignored.

    >>> to_arrow(pa.table({"colour": pa.array(["red", "red"]).dictionary_encode()}), "data").schema.field("colour").type
    DataType(string)
    """
    if isinstance(data, pa.RecordBatchReader):
        return _plain_reader(data, where, columns)
    pandas = is_pandas(data)
    table = _from_pandas(data, where, index_levels, columns) if pandas else _from_stream(data, where, columns)
    arrays = {name: _plain_column(table.column(name), name, where) for name in table.column_names}
    return pa.table(arrays) if arrays else table


def _from_stream(data: Any, where: str, columns: Collection[str] | None) -> pa.Table:
    """Convert a table that is not a pandas data frame to an Arrow table.

    `columns`: names of the columns that are converted, or None for all columns.
    """
    check_names(column_names(data), where)
    names = [name for name in column_names(data) if columns is None or name in columns]
    try:
        if isinstance(data, pa.RecordBatch):
            return pa.Table.from_batches([data]).select(names)
        if is_polars(data):
            return data.select(names).to_arrow()
        return (data if isinstance(data, pa.Table) else pa.table(data)).select(names)
    except Exception as error:  # libraries raise different exceptions for a column of Python objects
        raise InputError(where, f"cannot be read as Arrow ({_first_line(error)})", "convert or drop it") from None


def like(table: pa.Table, data: Any, same_rows: bool) -> Any:
    """Convert an Arrow table to a table of the library that `data` comes from: pandas, polars or Arrow.

    `same_rows`: True if `table` has the same rows as `data`. A pandas result then gets the index of `data`. In pandas,
    an integer or boolean column with missing values gets a nullable type such as Int64. Without a nullable type, pandas
    would convert the values to floats or objects.
    """
    if is_pandas(data):
        frame = table.to_pandas()
        for name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count and str(column.type) in NULLABLE:
                frame[name] = column.to_pandas(types_mapper=_nullable_type)
        if same_rows:
            frame.index = data.index
        return frame
    return sys.modules["polars"].from_arrow(table) if is_polars(data) else table


def _nullable_type(kind: pa.DataType) -> Any:
    return sys.modules["pandas"].api.types.pandas_dtype(NULLABLE[str(kind)])


def _from_pandas(frame: Any, where: str, index_levels: Collection[str], columns: Collection[str] | None) -> pa.Table:
    names = [str(name) for name in frame.columns]
    check_names(names, where)
    arrays = {
        name: _series(frame.iloc[:, position], name, where)
        for position, name in enumerate(names)
        if columns is None or name in columns
    }
    for level in range(frame.index.nlevels):
        name = str(frame.index.names[level])
        if name in index_levels and name not in names:
            arrays[name] = _series(frame.index.get_level_values(level).to_series(), name, where)
    return pa.table(arrays)


def _series(series: Any, name: str, where: str) -> pa.Array | pa.ChunkedArray:
    return cells_to_arrow(series, name, where, str(series.dtype))


def cells_to_arrow(cells: Any, name: str, where: str, kind: str = "object") -> pa.Array | pa.ChunkedArray:
    """Convert a list of cells, or a pandas column, to an Arrow array.

    A cell may be an array with several dimensions, although `pyarrow.array` does not accept such cells. `name`: name of
    the column in error messages. `where`: name of the table in error messages. `kind`: NumPy or pandas data type of the
    cells. Raises InputError with the name of the column if its cells have no Arrow type.

    >>> cells_to_arrow([np.zeros((2, 3))], "x", "data").type
    ListType(list<item: list<item: double>>)
    """
    try:
        try:
            return pa.array(cells, from_pandas=True)
        except pa.ArrowInvalid:
            if kind != "object":
                raise
            return pa.array([_as_list(cell) for cell in cells], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            where, f"column '{name}' (dtype {kind}) has no Arrow type ({_first_line(error)})", "convert it, or drop it"
        ) from None


def _as_list(cell: Any) -> Any:
    """In a cell, convert each array, series or tuple to a list."""
    if isinstance(cell, np.ndarray) and cell.ndim > 1:
        return [_as_list(entry) for entry in cell]
    if hasattr(cell, "to_numpy") and len(getattr(cell, "shape", ())) == 2:  # a data frame in which each row is a token
        return [_as_list(entry) for entry in cell.to_numpy()]
    if isinstance(cell, (list, tuple)) or (is_pandas(cell) and hasattr(cell, "tolist")):
        return [_as_list(entry) for entry in cell]
    return cell


def _plain_reader(reader: pa.RecordBatchReader, where: str, columns: Collection[str] | None) -> pa.RecordBatchReader:
    """Return a record batch reader that converts the record batches of `reader` one by one.

    The whole table need not fit into memory.
    """
    check_names(reader.schema.names, where)
    names = [name for name in reader.schema.names if columns is None or name in columns]
    empty = pa.RecordBatch.from_pylist([], reader.schema)
    schema = pa.schema([(name, _plain_column(empty.column(name), name, where).type) for name in names])

    def record_batches() -> Iterator[pa.RecordBatch]:
        for record_batch in reader:
            yield plain_batch(record_batch, names, where).cast(schema)

    return pa.RecordBatchReader.from_batches(schema, record_batches())


def _plain_column(column: Any, name: str, where: str) -> Any:
    """Convert a column to a plain type. The buffers of the column are validated, because DuckDB does not check them."""
    try:
        column.validate(full=True)
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        if _is_list_view(column.type):
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            parts = [_list_of_view(chunk) for chunk in chunks or [pa.array([], column.type)]]
            column = pa.chunked_array(parts) if isinstance(column, pa.ChunkedArray) else parts[0]
        if isinstance(column.type, pa.BaseExtensionType):
            column = _storage(column)
        if pa.types.is_duration(column.type):
            return _seconds(column)
        if is_list(column.type) and pa.types.is_duration(column.type.value_type):
            lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            lists = lists.cast(pa.large_list(column.type.value_type))
            return pa.LargeListArray.from_arrays(lists.offsets, _seconds(lists.values), mask=lists.is_null())
        kind = _plain_type(column.type)
        return column if kind == column.type else column.cast(kind)
    except pa.ArrowException as error:
        raise InputError(
            where, f"column '{name}' of type {column.type} cannot be read ({_first_line(error)})", "convert or drop it"
        ) from None


def _seconds(durations: Any) -> Any:
    return pc.divide(durations.cast(pa.int64()).cast(pa.float64()), UNITS_PER_SECOND[durations.type.unit])


def plain_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type that each column is converted to. A column of a type that DuckDB lacks is left out.

    A column that nothing reads must not stop a run.
    """
    types = {}
    for field in schema:
        with suppress(InputError, pa.ArrowNotImplementedError):  # Arrow makes no column of a union
            types[field.name] = _plain_column(pa.array([], field.type), field.name, "").type
    return types


def plain_batch(record_batch: pa.RecordBatch, names: Iterable[str], where: str) -> pa.RecordBatch:
    """Convert columns of a record batch to plain types. Raises InputError for a damaged column."""
    return pa.record_batch({name: _plain_column(record_batch.column(name), name, where) for name in names})


def _is_list_view(kind: pa.DataType) -> bool:
    return pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)


def _list_of_view(views: Any) -> pa.Array:
    """Convert an array of list views to an array of lists.

    Arrow's own conversion keeps only the tokens of the first list (pyarrow 26).
    """
    lengths = pc.fill_null(pc.list_value_length(views), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    return pa.LargeListArray.from_arrays(offsets, views.flatten(), mask=views.is_null())


def _storage(column: Any) -> Any:
    """Return the values of an extension array as an array of its storage type.

    Raises ArrowInvalid for the extension types of pandas.
    """
    if column.type.extension_name.startswith("pandas."):
        raise pa.ArrowInvalid("only pandas knows its meaning")
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column.storage


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type nearest to `kind` that both DuckDB and Parquet support."""
    types = pa.types
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal256(kind):
        return pa.float64() if kind.scale > 0 else pa.string()
    if types.is_fixed_size_list(kind):
        return pa.list_(_plain_type(kind.value_type), kind.list_size)
    if types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if _is_list_view(kind):
        raise pa.ArrowInvalid("list views inside of another type")
    if types.is_large_list(kind):
        return pa.large_list(_plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([(field.name, _plain_type(field.type)) for field in kind])
    return kind


def _first_line(error: BaseException) -> str:
    """Return the first line of an error message.

    Some Arrow errors have several messages in the attribute `args`, of which the first is used.
    """
    text = str(error.args[0]) if error.args else str(error)
    return (text.splitlines() or [type(error).__name__])[0].rstrip(" .")
