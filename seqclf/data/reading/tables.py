"""Conversion of in-memory tables to Arrow tables with plain column types.

Data frames of pandas and polars are known by their types, so neither is imported. Any other object with an Arrow stream
(`__arrow_c_stream__`), such as a DuckDB relation, is read from it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list, unmasked
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError, first_line

Table: TypeAlias = pa.Table | pa.RecordBatchReader
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
    if is_polars(data) and type(data).__name__ == "LazyFrame":
        raise InputError("data", "is a LazyFrame, a query that was not run", "run it: .collect()")
    # `columns` is checked last, because reading this attribute of a polars LazyFrame runs a query.
    is_reader = isinstance(data, pa.RecordBatchReader)
    return is_reader or (hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"))


def is_pandas(data: Any) -> bool:
    """Return True for an object of pandas, or of a package that extends pandas."""
    return any(kind.__module__.partition(".")[0] == "pandas" for kind in type(data).__mro__)


def is_polars(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "polars"


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of a table, and of the index levels of a pandas table."""
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)):
        return data.schema.names
    levels = data.index.names if is_pandas(data) else []
    return [*map(str, data.columns), *(str(name) for name in levels if name is not None)]


def to_arrow(
    data: Any, where: str, index_levels: Collection[str] = (), columns: Collection[str] | None = None
) -> Table:
    """Convert a table to an Arrow table with types that both DuckDB and Parquet support.

    Categories become their values, durations seconds. A record batch reader stays one, whose rows can be read once.
    Raises InputError with the name of a column whose cells have no Arrow type.

    `where`: name of the table in errors. `index_levels`: index levels of a pandas table that become columns, unless a
    column has the name. `columns`: names of the columns that are converted, None for all; others are ignored.

    >>> to_arrow(pa.table({"colour": pa.array(["red", "red"]).dictionary_encode()}), "data").schema.field("colour").type
    DataType(string)
    """
    available = [str(name) for name in data.columns] if is_pandas(data) else column_names(data)
    check_names(available, where)
    names = [name for name in available if columns is None or name in columns]
    if isinstance(data, pa.RecordBatchReader):
        return _plain_reader(data, names, where)
    table = _from_pandas(data, where, names, index_levels) if is_pandas(data) else _from_stream(data, where, names)
    arrays = {name: _plain_column(table.column(name), name, where) for name in table.column_names}
    return pa.table(arrays) if arrays else table


def _from_stream(data: Any, where: str, names: list[str]) -> pa.Table:
    try:
        return data.select(names).to_arrow() if is_polars(data) else pa.table(data).select(names)
    except Exception as error:  # libraries raise different exceptions for a column of Python objects
        raise InputError(where, f"cannot be read as Arrow ({first_line(error)})", "convert or drop it") from None


def _from_pandas(frame: Any, where: str, names: list[str], index_levels: Collection[str]) -> pa.Table:
    columns = {str(name): frame.iloc[:, position] for position, name in enumerate(frame.columns)}
    series = {name: columns[name] for name in names}
    for level, name in enumerate(map(str, frame.index.names)):
        if name in index_levels and name not in columns:
            series[name] = frame.index.get_level_values(level).to_series()
    return pa.table({name: cells_to_arrow(cells, name, where, str(cells.dtype)) for name, cells in series.items()})


def like(table: pa.Table, data: Any, same_rows: bool) -> Any:
    """Convert an Arrow table to a table of the library that `data` comes from: pandas, polars or Arrow.

    `same_rows`: True to give a pandas result the index of `data`. Integers and booleans with missing values get a
    nullable pandas type such as Int64, because they would become floats or objects.
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


def cells_to_arrow(cells: Any, name: str, where: str, kind: str = "object") -> pa.Array | pa.ChunkedArray:
    """Convert a list of cells, or a pandas column, to an Arrow array. Cells may be arrays with several dimensions.

    `name`, `where`: names of column and table in errors. `kind`: NumPy or pandas type of the cells. Raises InputError
    if its cells have no Arrow type.

    >>> cells_to_arrow([np.zeros((2, 3))], "x", "data").type
    ListType(list<item: list<item: double>>)
    """
    try:
        if kind == "object" and not isinstance(cells, np.ma.MaskedArray):  # Arrow reads its mask, but none of cells
            cells = list(map(unmasked, cells))
        try:
            return pa.array(cells, from_pandas=True)
        except pa.ArrowInvalid:
            if kind != "object":
                raise
            return pa.array([_as_list(cell) for cell in cells], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        problem = f"column '{name}' (dtype {kind}) has no Arrow type ({first_line(error)})"
        raise InputError(where, problem, "convert it, or drop it") from None


def _as_list(cell: Any) -> Any:
    if isinstance(cell, np.ndarray) and cell.ndim > 1:
        return [_as_list(entry) for entry in cell]
    if hasattr(cell, "to_numpy") and len(getattr(cell, "shape", ())) == 2:  # a data frame in which each row is a token
        return [_as_list(entry) for entry in cell.to_numpy()]
    if isinstance(cell, (list, tuple)) or (is_pandas(cell) and hasattr(cell, "tolist")):
        return [_as_list(entry) for entry in cell]
    return cell


def _plain_reader(reader: pa.RecordBatchReader, names: list[str], where: str) -> pa.RecordBatchReader:
    empty = pa.RecordBatch.from_pylist([], reader.schema)
    schema = plain_batch(empty, names, where).schema
    batches = (plain_batch(batch, names, where).cast(schema) for batch in reader)
    return pa.RecordBatchReader.from_batches(schema, batches)


def _plain_column(column: Any, name: str, where: str) -> Any:
    """Buffers are validated, because DuckDB does not check them."""
    try:
        column.validate(full=True)
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        if pa.types.is_duration(column.type):
            return _seconds(column)
        if is_list(column.type) and pa.types.is_duration(column.type.value_type):
            lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            lists = lists.cast(pa.large_list(column.type.value_type))
            return pa.LargeListArray.from_arrays(lists.offsets, _seconds(lists.values), mask=lists.is_null())
        kind = plain_type(column.type)
        return column if kind == column.type else column.cast(kind)
    except pa.ArrowException as error:
        problem = f"column '{name}' of type {column.type} cannot be read ({first_line(error)})"
        raise InputError(where, problem, "convert or drop it") from None


def _seconds(durations: Any) -> Any:
    return pc.divide(durations.cast(pa.int64()).cast(pa.float64()), UNITS_PER_SECOND[durations.type.unit])


def plain_types(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the type that each column is converted to, without columns of types that DuckDB lacks.

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


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type nearest to `kind` that both DuckDB and Parquet support. Raises ArrowInvalid if there is none."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name.startswith("pandas."):
            raise pa.ArrowInvalid("only pandas knows its meaning")
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal256(kind):
        return pa.float64() if kind.scale > 0 else pa.string()
    if types.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type), kind.list_size)
    if types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        raise pa.ArrowInvalid("a list view, which DuckDB and Parquet lack")
    if types.is_struct(kind):
        return pa.struct([(field.name, plain_type(field.type)) for field in kind])
    return kind
