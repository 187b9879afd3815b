"""Predictions for tables in memory, and for files whose predictions fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from seqclf.bundle.limits import Limits
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result, predictions_schema
from seqclf.bundle.rows.windows import id_type
from seqclf.bundle.training_memory import RowSample
from seqclf.data.reading.tables import like
from seqclf.errors import InputError


def predict_table(classifier: BundleModel, data: Any, limits: Limits) -> Any:
    """Predict the rows of a table or file, within limits. Return a table of the same library.

    The result has the columns of the predict command. Its ids, under the name of their column or `id`, are those of the
    bundle's id column, the groups of an event table, or row numbers, of the result of the bundle's query or of a file.
    For a record batch reader, the result is a reader, which predicts a batch when it is read.
    """
    source, schema = classifier.table_source(data), classifier.schema
    names = [] if source.table is None else source.table.schema.names
    all_columns = table_schema(classifier, None).names
    same_rows = source.table is not None and source.query is None and not schema.group_by
    # Without an id column, the result has row numbers as ids, but only if the rows may differ from the input rows.
    columns = all_columns[1:] if same_rows and schema.id not in names else all_columns
    own = schema.id or (schema.group_by[0] if len(schema.group_by) == 1 else "id")
    named = {} if own in columns else {"id": own}
    sample = RowSample(classifier.memory)
    results = classifier.predict_windows(source, sample if limits else None)
    results = limits.checked(results, classifier.strange, sample)

    def empty() -> pa.Schema:  # only a result without rows needs the type of the ids
        return table_schema(classifier, id_type(schema, source))

    return to_library(results, empty, data, columns, same_rows=same_rows, named=named)


def table_schema(classifier: BundleModel, ids: pa.DataType | None) -> pa.Schema:
    """Return the schema of the predictions of a classifier. `ids`: type of the ids, None for row numbers."""
    extra, strange = classifier.extra, classifier.strange.names
    return predictions_schema(classifier.classes, classifier.labels.type, ids, extra=extra, strange=strange)


def to_library(
    results: Iterable[Result],
    empty: Callable[[], pa.Schema],
    data: Any,
    columns: list[str],
    *,
    same_rows: bool,
    named: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Convert results to a table of the same library as `data`, or to a reader if `data` is one.

    `empty`: returns the schema of the table if there are no results. `columns`: names of the columns to return.
    `same_rows`: True if row i of the results belongs to row i of `data`. `named`: dict column → its name in the table.
    """
    names = [named.get(name, name) for name in columns]
    tables = (result.table.select(columns).rename_columns(names) for result in results)
    first = next(tables, None)
    if first is None:
        first = pa.RecordBatch.from_pylist([], empty()).select(columns).rename_columns(names)
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], tables))
    table = pa.Table.from_batches([first, *tables])
    require_usable(table.column("error").to_pylist() if "error" in names else [])
    return like(table, data, same_rows=same_rows)


def require_usable(errors: Sequence[str | None]) -> None:
    """Raise InputError if several rows are all rejected. `errors`: the error of each row, None for a usable row."""
    if len(errors) > 1 and all(errors):
        raise InputError("data", f"all {len(errors)} rows are rejected; row 0: {errors[0]}")
