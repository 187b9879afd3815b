"""SQL of canonical columns, which row checks and encoders read, as dict name of a canonical column → SQL."""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.data.encoding.encoders import make_encoder
from seqclf.data.ragged import is_list
from seqclf.data.schema import casts
from seqclf.data.schema.schema import AS_TEXT, Schema


def select_list(columns: Mapping[str, str]) -> str:
    """Return a SELECT list. `columns`: dict name of a column → SQL.

    >>> print(select_list({"k": "a + 1"}))
    a + 1 AS "k"
    """
    return ", ".join(f"{sql} AS {casts.quote_identifier(name)}" for name, sql in columns.items())


def canonical_columns(schema: Schema, types: Mapping[str, str], where: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the canonical columns of a table in which each row is one sequence (see `SourceReader.read`).

    `types`: dict column → DuckDB type. `keys`: dict additional column → SQL. `where`: name of the source in errors.
    """
    columns = label_and_id(schema, types) | dict(keys)
    for field in schema.fields:
        encoder = make_encoder(field)
        columns[field.name] = encoder.list_sql(types, where)
        column = field.columns[0]
        if types[column] in casts.TEXT_TYPES and is_list(encoder.canonical_type) and not field.static:
            text = f"CAST({casts.plain(column, types[column])} AS VARCHAR)"
            columns[casts.raw_column(field.name)] = f"left({text}, {casts.SHOWN_CHARACTERS})"
    return columns


def label_and_id(schema: Schema, types: Mapping[str, str]) -> dict[str, str]:
    columns = {}
    if schema.label is not None:
        columns[casts.LABEL] = label_sql(schema.label, types[schema.label])
    if schema.id is not None:
        columns[casts.ID] = casts.key_sql(schema.id, types[schema.id])
    return columns


def label_sql(column: str, kind: str) -> str:
    """Return the SQL of labels as text, null for bytes that are no text. `kind`: DuckDB type of the column."""
    value = casts.plain(column, kind) if kind == "BLOB" else casts.key_sql(column, kind)
    return f"CAST({casts.spelled_sql(value, kind)} AS VARCHAR)"


# Event tables: SQL of the canonical value of each event and channel, and of the order of the events.

EVENTS = "events"  # table alias; with it, ORDER BY refers to a column of the table and not to a name in `event_columns`


def channel(field: str, position: int) -> str:
    return f"{field} {position}"


def group(position: int) -> str:
    return f"group {position}"


def event_columns(schema: Schema, types: Mapping[str, str], where: str, keys: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of an event table: group keys, label, id, the columns in `keys`, the channels, and UNORDERED.

    UNORDERED is there if a column of texts orders the events. The arguments are those of `canonical_columns`.
    """
    columns = {group(place): casts.key_sql(column, types[column]) for place, column in enumerate(schema.group_by)}
    columns |= label_and_id(schema, types) | dict(keys)
    for field in schema.fields:
        encoder = make_encoder(field)
        for position, column in enumerate(field.columns):
            columns[channel(field.name, position)] = encoder.event_sql(column, types[column], where)
    if unordered := _unordered_cells(schema, types):
        columns[casts.UNORDERED] = unordered
    return columns


def _unordered_cells(schema: Schema, types: Mapping[str, str]) -> str | None:
    """Return SQL for the first cell of an event by which it cannot be sorted, with the column before it, or null."""
    cases = []
    for column in schema.order_by:
        if types[column] in casts.TEXT_TYPES and schema.order_format != AS_TEXT:
            value = casts.plain(column, types[column])
            shown = f"concat({casts.quote_literal(column)}, chr(31), left({value}, {casts.SHOWN_CHARACTERS}))"
            is_bad = f"{_seconds(value, schema)} IS NULL AND NOT {casts.is_missing_sql(value)}"
            cases.append(f"WHEN {is_bad} THEN CAST({shown} AS VARCHAR)")
    return f"CASE {' '.join(cases)} END" if cases else None


def _seconds(text: str, schema: Schema) -> str:
    pattern = schema.order_format
    return casts.seconds_sql(text) if pattern is None else casts.formatted_seconds_sql(text, pattern)


def event_order(schema: Schema, types: Mapping[str, str]) -> list[str]:
    """Return the ORDER BY list that sorts the events of each group.

    Texts are compared as numbers or times, in `schema.order_format` (`AS_TEXT`: as texts), because their alphabetical
    order is rarely that of the events. Other cells come last, and row checks reject their sequence (see UNORDERED).
    """
    order = []
    for column in schema.order_by:
        value = casts.plain(column, types[column], EVENTS)
        if types[column] not in casts.TEXT_TYPES:
            order.append(value)
        elif schema.order_format == AS_TEXT:
            order += [casts.seconds_sql(value), value]
        else:
            order.append(_seconds(value, schema))
    return order
