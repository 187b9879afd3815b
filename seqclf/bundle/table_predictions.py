"""Predictions of tables in memory: data frames of pandas and polars, and Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import pyarrow as pa

from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result, predictions_schema
from seqclf.data.reading.tables import like


def predict_table(classifier: BundleModel, data: Any) -> Any:
    """Return the predictions of a table as a table of the same library, with the columns of the predict command.

    There is an `id` where the bundle knows one and the table has it, for event tables (the group), and where the query
    of the bundle may have changed the rows (their number in its result). A reader of record batches gives a reader,
    which predicts while it is read.
    """
    source, schema = classifier.table_source(data), classifier.schema
    names = source.table.schema.names
    id_type = source.table.schema.field(schema.id).type if schema.id in names else None
    empty = predictions_schema(classifier.classes, classifier.labels.type, id_type, may_halt=classifier.may_halt)
    same_rows = source.query is None and not schema.group_by
    # Rows that keep their place next to those of the table need no numbers.
    columns = empty.names[1:] if same_rows and id_type is None else empty.names
    return to_library(classifier.predict_windows(source), empty, data, columns, same_rows=same_rows)


def to_library(results: Iterable[Result], empty: pa.Schema, data: Any, columns: list[str], *, same_rows: bool) -> Any:
    """Return `columns` of the results as a table of the library of `data`, or for a reader as a reader.

    `empty`: the schema of no results. `same_rows`: the results have a row for each row of `data`.
    """
    tables = (result.table.select(columns) for result in results)
    first = next(tables, pa.RecordBatch.from_pylist([], empty).select(columns))
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], tables))
    return like(pa.Table.from_batches([first, *tables]), data, same_rows=same_rows)
