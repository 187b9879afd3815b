"""A window is a contiguous block of rows, from files or a table, in canonical columns, that are predicted together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from seqclf.bundle.predictions import Result
from seqclf.data.reading.csv_dialect import DELIMITERS
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source, class_folder, local_files, suffix_of
from seqclf.data.reading.tables import column_names, to_arrow
from seqclf.data.reading.text_formats import JsonLines
from seqclf.data.schema.casts import GROUP, TIME, WEIGHT, key_sql, named_keys
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.errors import InputError
from seqclf.system import progress

BLANK_BYTES = 65536  # more white space than a file without rows has
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
    """Yield the results of all windows, as `predict` does, in their order. `Journal.results` also keeps them."""
    return chain.from_iterable(predict(iter(windows)))


class LabelColumns(NamedTuple):
    """Names of columns beside the fields. `table`: joins labels by id, in place of `label`. `time`: of first events."""

    label: str | None = None
    table: LabelTable | None = None
    group: str | None = None
    time: str | None = None
    weight: str | None = None


NO_LABELS = LabelColumns()


def source_windows(
    schema: Schema, source: Source, columns: LabelColumns = NO_LABELS, *, verb: str, unit: str, window_rows: int
) -> Iterator[Window]:
    """Read files or a table, and yield one window after the other. Raises InputError if the source lacks a column.

    `columns`: become the canonical columns `label`, and GROUP, GROUP_NAME, TIME and WEIGHT of `schema.casts`. `verb`,
    `unit`: of the progress bar, which advances when the caller requests the next window. `window_rows`: number of rows
    of a window, or about so many of an event table.
    """
    label, table, group, time, weight = columns
    # The query of the bundle may name the label column, which is null in a file without labels.
    source = _with_columns(schema, source) if label is None and table is None else source
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
        keys = dict[str, str]()
        joined = [] if table is None else table.row_keys
        for key in named_keys((GROUP, "data.group", group), (TIME, "time", time), (WEIGHT, "data.weight", weight)):
            if key not in joined:
                required.append((key.option, key.column))
                keys |= key.sql(types)
        require_columns(required, types, str(source))
        schema = replace(schema, label=label, id=id)
        total = None if schema.group_by else reader.stored_rows()
        with progress.stage(f"{verb} {source.short_name}", total=total, unit=unit) as current:
            first_row = 1
            for rows in reader.read(schema, keys, window_rows):
                yield Window(first_row, rows if table is None else table.labelled(rows))
                first_row += rows.columns.num_rows
                current.completed = first_row - 1  # prediction also advances the bar, but leaves out rejected rows


def id_type(schema: Schema, source: Source) -> pa.DataType | None:
    """Return the type of the ids in a source: those of a column, or the groups of events. None: there are none."""
    names = (schema.id,) if schema.id is not None else schema.group_by
    if len(names) > 1:
        return pa.string()  # texts of several keys (see `joined_key`)
    source = _with_columns(schema, source)
    if source.table is not None and source.query is None:
        found = source.table.schema
        return found.field(names[0]).type if names and names[0] in found.names else None
    with SourceReader(source) as reader:
        keys = {name: key_sql(name, kind) for name, kind in reader.column_types.items() if name in names}
        return reader.select(keys).schema.types[0] if keys else None


def _with_columns(schema: Schema, source: Source) -> Source:
    """Return a source without rows, which may have no columns or columns of any type, as a table of null fields."""
    names = [column for _, column in required_columns(schema)]
    if source.table is not None:
        table = source.table
        if source.query is not None or isinstance(table, pa.RecordBatchReader) or table.num_rows:
            return source
        columns = {name: pa.nulls(0) if name in names else table.column(name) for name in table.column_names}
        return replace(source, table=pa.table(columns))
    files = local_files(source) if class_folder(source) is None else []
    if not files or not all(_is_blank(path, source.header) for path in files):
        return source
    return replace(source, query=None, table=pa.table({name: pa.nulls(0) for name in names}))


def _is_blank(path: Path, header: bool) -> bool:
    """Return True for a file of JSON without a row, and for an empty text file whose columns have no names."""
    ending = suffix_of(path)
    with suppress(OSError), pa.input_stream(path) as content:  # the reader tells why a file cannot be read
        if ending in JsonLines.endings:
            return content.read(BLANK_BYTES).strip() in (b"", b"[]")
        return ending in DELIMITERS and not header and not content.read(1)
    return False


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
    """Return a schema for a table in which a field reads the column of its name if its training column is missing.

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
