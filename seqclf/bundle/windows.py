"""Windows: consecutive rows of a source as canonical columns, the unit of work of predictions and explanations.

Lists of Python rows (`row_windows`), files and tables in memory (`source_windows`) give the same stream. A source is
opened, and its columns are cast, once for all of its windows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.row_estimate import estimate_rows
from seqclf.data.reading.sources import Source, require_files
from seqclf.data.reading.tables import column_names, to_arrow
from seqclf.data.schema.casts import GROUP, RowKey
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.errors import InputError
from seqclf.system import progress

TABLE = "data"  # name of a table or list in memory, as the argument is called


@dataclass(frozen=True)
class Window:
    """Consecutive rows of a source. A window can be pickled, and needs neither its source nor its reader.

    Attributes:
        index: number of the window in its source, from 0.
        first_row: number of its first row in the source, from 1.
        rows: (N,) rows as canonical columns, with their file.
        value_errors: (N,) error or None of each Python row (see `to_columns`); empty for files and tables.
    """

    index: int
    first_row: int
    rows: SourceRows
    value_errors: Sequence[str | None] = ()

    @property
    def columns(self) -> pa.RecordBatch:
        """Canonical columns of the rows."""
        return self.rows.columns


def row_windows(
    sequences: list[Any],
    to_columns: Callable[[list[Any]], tuple[pa.RecordBatch, list[str | None]]],
    window_rows: int,
) -> Iterator[Window]:
    """Yield the windows of Python rows. `to_columns`: see `BundleModel.to_columns`."""
    for index, start in enumerate(range(0, len(sequences), window_rows)):
        columns, value_errors = to_columns(sequences[start : start + window_rows])
        numbers = np.arange(start + 1, start + 1 + columns.num_rows)
        yield Window(index, start + 1, SourceRows(TABLE, numbers, columns), value_errors)


def source_windows(
    schema: Schema,
    source: Source,
    label: str | None = None,
    table: LabelTable | None = None,
    group: str | None = None,
    *,
    title: str,
    unit: str,
    window_rows: int,
) -> Iterator[Window]:
    """Yield the windows of the files of a source, or of its table.

    Args:
        schema: the schema of a bundle.
        source: files or a table (see `table_source`).
        label: column to read along as `label`.
        table: label table to join by id instead.
        group: column to read along as GROUP and GROUP_NAME of `schema.casts`.
        title: title of the progress.
        unit: unit of the progress, which counts the rows of a window once the next window is asked for.
        window_rows: rows of a window; event tables have windows of their own sizes.

    Raises:
        InputError: the source is SQL, lacks a column, or cannot be read.
    """
    require_files(source)
    # The query of training may name the label, which files to be predicted lack.
    null_columns = (schema.label,) if label is None and schema.label is not None else ()
    with SourceReader(source, null_columns=null_columns) as reader:
        types = reader.column_types
        if source.table is not None:
            schema = by_field_names(schema, types)
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
        require_columns(required, types, str(source))
        schema = replace(schema, label=label, id=id)
        total = None if schema.group_by else estimate_rows(reader)
        with progress.stage(title, total=total, unit=unit) as current:
            first_row = 1
            for index, rows in enumerate(reader.read(schema, keys, window_rows)):
                yield Window(index, first_row, rows if table is None else table.labelled(rows))
                first_row += rows.columns.num_rows
                current.completed = first_row - 1  # what advanced it meanwhile does not count refused rows


def table_source(schema: Schema, query: str | None, data: Any) -> Source:
    """Return the source that reads a table. `query`: of the bundle. Raises InputError if the table lacks a column."""
    available = column_names(data)
    if query is not None:  # it may read any column, under any name
        return Source(TABLE, TABLE, query=query, table=to_arrow(data, TABLE, index_levels=available))
    schema = by_field_names(schema, available)
    require_columns(required_columns(schema), available, TABLE)
    needed = {column for _, column in schema.columns} | ({schema.id} if schema.id is not None else set())
    return Source(TABLE, TABLE, table=to_arrow(data, TABLE, index_levels=needed, columns=needed))


def by_field_names(schema: Schema, available: Collection[str]) -> Schema:
    """Return a schema that reads a field from the column of its name, where the column it was trained on is missing.

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
    """(words for errors, column) of the columns that a bundle reads."""
    return [(key.replace("data.fields.", "field ") + " of the bundle", name) for key, name in schema.columns]
