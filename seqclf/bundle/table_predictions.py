"""Predictions for tables in memory: pandas and polars data frames, and Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pyarrow as pa

from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result, predictions_schema
from seqclf.data.reading.tables import like


def predict_table(classifier: BundleModel, data: Any) -> Any:
    """Predict the rows of a table. Return a table of the same library, with the columns of the predict command.

    The result has a column `id` in three cases. If `data` has the id column of the bundle, `id` is a copy of the id
    column. If `data` is an event table, `id` is the group. If the bundle has a query, `id` is the row number in the
    result of the query. If `data` is a record batch reader, the result is also a reader, which predicts a batch when
    the batch is read.
    """
    source, schema = classifier.table_source(data), classifier.schema
    names = source.table.schema.names
    id_type = source.table.schema.field(schema.id).type if schema.id in names else None
    may_halt, strange = classifier.may_halt, classifier.strange.names
    empty = predictions_schema(classifier.classes, classifier.labels.type, id_type, may_halt=may_halt, strange=strange)
    same_rows = source.query is None and not schema.group_by
    # Without an id column, the result has row numbers as ids, but only if the rows may differ from the input rows.
    columns = empty.names[1:] if same_rows and id_type is None else empty.names
    return to_library(classifier.predict_windows(source), empty, data, columns, same_rows=same_rows)


def to_library(results: Iterable[Result], empty: pa.Schema, data: Any, columns: list[str], *, same_rows: bool) -> Any:
    """Convert results to a table of the same library as `data`. If `data` is a reader, return a reader.

    `empty`: schema of the table if there are no results. `columns`: names of the columns to return. `same_rows`: True
    if row i of the results belongs to row i of `data`.
    """
    tables = (result.table.select(columns) for result in results)
    first = next(tables, pa.RecordBatch.from_pylist([], empty).select(columns))
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], tables))
    return like(pa.Table.from_batches([first, *tables]), data, same_rows=same_rows)
