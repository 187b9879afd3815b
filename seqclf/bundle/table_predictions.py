"""Predictions of tables in memory: data frames of pandas and polars, and Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.bundle.model import BundleModel, by_field_names, required_columns
from seqclf.bundle.predictions import predictions_schema, predictions_table, without_id
from seqclf.data.reading.sources import Source
from seqclf.data.reading.tables import column_names, like, to_arrow
from seqclf.data.schema.schema import require_columns

NAME = "data"  # of the table in error messages, as the argument is called


def predict_table(classifier: BundleModel, data: Any) -> Any:
    """Return the predictions of a table as a table of the same library, with the columns of the predict command.

    There is an `id` where the bundle knows one and the table has it, for event tables (the group), and where the query
    of the bundle may have changed the rows (their number in its result). A reader of record batches gives a reader,
    which predicts while it is read.
    """
    source = table_source(classifier, data)
    same_rows = source.query is None and not classifier.schema.group_by
    return to_library(_record_batches(classifier, source), _empty_schema(classifier, source), data, same_rows)


def to_library(record_batches: Iterator[pa.RecordBatch], empty: pa.Schema, data: Any, same_rows: bool) -> Any:
    """Return record batches as a table of the library of `data`, or for a reader as a reader.

    `empty`: the schema where there are none. `same_rows`: a row for each row of `data`.
    """
    first = next(record_batches, None)
    if first is None:
        first = pa.RecordBatch.from_pylist([], empty)
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(first.schema, _chain(first, record_batches))
    return like(pa.Table.from_batches([first, *record_batches]), data, same_rows=same_rows)


def table_probabilities(classifier: BundleModel, data: Any) -> np.ndarray:
    """(N, C) probabilities of the rows of a table, NaN in refused rows."""
    windows = classifier.predict_source(table_source(classifier, data))
    parts = [predictions.probabilities for _, predictions in windows]
    return np.concatenate(parts) if parts else np.empty((0, len(classifier.classes)))


def table_source(classifier: BundleModel, data: Any) -> Source:
    """Return the source that reads a table. Raises InputError if it lacks a column."""
    query = classifier.manifest["reader"]["query"]
    available = column_names(data)
    if query is not None:  # it may read any column, under any name
        return Source(NAME, NAME, query=query, table=to_arrow(data, NAME, index_levels=available))
    schema = by_field_names(classifier.schema, available)
    require_columns(required_columns(schema), available, NAME)
    needed = {column for _, column in schema.columns} | ({schema.id} if schema.id is not None else set())
    return Source(NAME, NAME, table=to_arrow(data, NAME, index_levels=needed, columns=needed))


def _record_batches(classifier: BundleModel, source: Source) -> Iterator[pa.RecordBatch]:
    first_row = 1
    for rows, predictions in classifier.predict_source(source):
        ids = rows.columns.column("id") if "id" in rows.columns.schema.names else None
        table = predictions_table(predictions, classifier.classes, classifier.labels, ids, first_row)
        first_row += len(predictions.errors)
        yield without_id(table) if ids is None and source.query is None else table


def _empty_schema(classifier: BundleModel, source: Source) -> pa.Schema:
    """Return the schema of the predictions of no rows."""
    names, id = source.table.schema.names, classifier.schema.id
    id_type = source.table.schema.field(id).type if id in names else None
    schema = predictions_schema(classifier.classes, classifier.labels.type, id_type, may_halt=classifier.may_halt)
    has_id = id in names or bool(classifier.schema.group_by) or source.query is not None
    return schema if has_id else schema.remove(0)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from others
