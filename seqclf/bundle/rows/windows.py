"""A window is a contiguous block of rows that are predicted or explained together.

A window holds canonical columns: Arrow columns of fixed types, one column per field. The rows come from files or from a
table in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa

from seqclf.bundle.predictions import Result
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.reading.tables import column_names, to_arrow
from seqclf.data.schema.casts import GROUP, TIME, RowKey
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.errors import InputError
from seqclf.system import progress

TABLE = "data"  # name of a table or list in error texts, because `Classifier.predict` has the argument `data`


class Window(NamedTuple):
    """A contiguous block of rows from a source. A window can be pickled without its source.

    `first_row`: number of the window's first row in the source, counted from 1. `rows`: canonical columns with N rows,
    and the file of each row.
    """

    first_row: int
    rows: SourceRows

    @property
    def columns(self) -> pa.RecordBatch:
        """Canonical columns of the rows."""
        return self.rows.columns


PredictWindows = Callable[[Iterator[Window]], Iterator[list[Result]]]
RunWindows = Callable[[Iterable[Window], PredictWindows], Iterator[Result]]


def run_windows(windows: Iterable[Window], predict: PredictWindows) -> Iterator[Result]:
    """Yield the results of all windows. `Journal.results` is another such function, which keeps the results.

    `predict`: function that returns the results of each window, in the order of the windows.
    """
    return chain.from_iterable(predict(iter(windows)))


def source_windows(
    schema: Schema,
    source: Source,
    label: str | None = None,
    table: LabelTable | None = None,
    group: str | None = None,
    time: str | None = None,
    *,
    title: str,
    unit: str,
    window_rows: int,
) -> Iterator[Window]:
    """Read files or a table, and yield one window after the other.

    Args:
        schema: the schema of a bundle.
        source: files or a table (see `table_source`).
        label: name of the label column, which becomes the canonical column `label`.
        table: label table to join with the rows by id. If there is a label table, `label` is None.
        group: name of the group column, which becomes the canonical columns GROUP and GROUP_NAME of `schema.casts`.
        time: name of a column of times, which becomes the canonical column TIME of `schema.casts`; the first one of a
            sequence of events.
        title: title of the progress bar.
        unit: unit of the progress bar. The bar advances by the rows of a window when the caller requests the next
            window.
        window_rows: number of rows of a window. The windows of an event table may have more or fewer rows.

    Raises:
        InputError: the source lacks a column, or cannot be read.
    """
    # The query of the bundle may name the label column. In a file without labels, a null column replaces the label
    # column.
    null_columns = (schema.label,) if label is None and schema.label is not None else ()
    with SourceReader(source, null_columns=null_columns) as reader:
        types = reader.column_types
        if source.table is not None:
            schema = by_field_names(schema, types)
        if table is not None:
            schema = table.without_joined(schema, types.keys())
        required = required_columns(schema)
        if label is not None:
            required.append(("data.label", label))
        id = schema.id if schema.id in types else None
        if table is not None and id is None and not schema.group_by:
            no_column, no_id = f"no column '{schema.id}' (data.id)", "the bundle was trained without data.id"
            reason = no_column if schema.id else no_id
            raise InputError(source, f"{reason}, by which the labels of {table.source} are joined")
        keys = {}
        if group is not None and not (table is not None and table.row_keys):
            required.append(("data.group", group))
            keys = RowKey(GROUP, "data.group", group).sql(types)
        if time is not None:
            required.append(("time", time))
            keys |= RowKey(TIME, "time", time).sql(types)
        require_columns(required, types, str(source))
        schema = replace(schema, label=label, id=id)
        total = None if schema.group_by else reader.stored_rows()
        with progress.stage(title, total=total, unit=unit) as current:
            first_row = 1
            for rows in reader.read(schema, keys, window_rows):
                yield Window(first_row, rows if table is None else table.labelled(rows))
                first_row += rows.columns.num_rows
                current.completed = first_row - 1  # prediction also advances the bar, but leaves out rejected rows


def table_source(schema: Schema, query: str | None, data: Any) -> Source:
    """Return a source that reads a table. `query`: query of the bundle. Raises InputError if a column is missing."""
    available = column_names(data)
    named = {column for _, column in required_columns(by_field_names(schema, available))}
    if query is not None or not named <= set(available):  # the query, or a list of objects, may hold the columns
        return Source(TABLE, TABLE, query=query, table=to_arrow(data, TABLE, index_levels=available))
    schema = by_field_names(schema, available)
    needed = {column for _, column in schema.columns} | ({schema.id} if schema.id is not None else set())
    return Source(TABLE, TABLE, table=to_arrow(data, TABLE, index_levels=needed, columns=needed))


def by_field_names(schema: Schema, available: Collection[str]) -> Schema:
    """Return a schema for a table whose columns are named like the fields.

    A field reads the column with its own name if its training column is missing.

    >>> from seqclf.data.schema.schema import Field
    >>> schema = Schema((Field("words", "text", ("column1",)),))
    >>> by_field_names(schema, ["words"]).columns, by_field_names(schema, ["words", "column1"]).columns
    ([('data.fields.words', 'words')], [('data.fields.words', 'column1')])
    """
    fields = tuple(
        replace(field, columns=(field.name,))
        if len(field.columns) == 1 and field.columns[0] not in available and field.name in available
        else field
        for field in schema.fields
    )
    return replace(schema, fields=fields)


def required_columns(schema: Schema) -> list[tuple[str, str]]:
    """Return a list of pairs (text for error messages, column name), one pair for each column of the fields."""
    names = {"data.fields.": "field ", "data.static.": "static field "}
    columns = []
    for key, name in schema.columns:
        for start, word in names.items():
            key = key.replace(start, word)
        columns.append((f"{key} of the bundle", name))
    return columns
