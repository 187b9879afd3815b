"""SELECT lists of the canonical columns that checks and encoders read."""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.data.encoding.registry import make_encoder
from seqclf.data.ragged import is_list
from seqclf.data.schema.casts import (
    ID,
    LABEL,
    SHOWN_CHARACTERS,
    TEXT_TYPES,
    formatted_seconds_sql,
    is_missing_sql,
    plain,
    quote_identifier,
    quote_literal,
    raw_column,
    seconds_sql,
)
from seqclf.data.schema.schema import AS_TEXT, Schema


def canonical_columns(schema: Schema, types: Mapping[str, str], where: str, keys: Mapping[str, str]) -> list[str]:
    """SELECT list of a table with a row per sequence (see `SourceReader.read`).

    `types`: DuckDB type by column. `keys`: SQL of further columns by name. `where`: the source, for error messages.
    """
    expressions = label_id_and_keys(schema, types, keys)
    for field in schema.fields:
        encoder = make_encoder(field)
        expressions.append(f"{encoder.list_sql(types, where)} AS {quote_identifier(field.name)}")
        column = field.columns[0]
        if types[column] in TEXT_TYPES and is_list(encoder.canonical_type):
            text = f"CAST({plain(column, types[column])} AS VARCHAR)"
            expressions.append(f"left({text}, {SHOWN_CHARACTERS}) AS {quote_identifier(raw_column(field.name))}")
    return expressions


def label_id_and_keys(schema: Schema, types: Mapping[str, str], keys: Mapping[str, str]) -> list[str]:
    """SELECT list of what a row has next to its fields."""
    expressions = []
    if schema.label is not None:
        expressions.append(f"CAST({plain(schema.label, types[schema.label])} AS VARCHAR) AS {LABEL}")
    if schema.id is not None:
        expressions.append(f"{plain(schema.id, types[schema.id])} AS {ID}")
    return expressions + [f"{key} AS {quote_identifier(name)}" for name, key in keys.items()]


# Columns of an event table as DuckDB expressions: one canonical value per token and channel, and the sort order.

UNORDERED = "unordered cell: "  # begins DuckDB's error for a cell that has no place in the order
EVENTS = "events"  # alias of the table, so that the sort can name its columns and not those of `event_columns`


def channel(field: str, position: int) -> str:
    """Name of the column that holds one channel of `field`."""
    return f"{field} {position}"


def group(position: int) -> str:
    """Name of the column that holds one of `schema.group_by`."""
    return f"group {position}"


def event_columns(schema: Schema, types: Mapping[str, str], where: str, keys: Mapping[str, str]) -> list[str]:
    """SELECT list of an event table: the group, label, id and keys of each event, and a column per channel.

    `types`: DuckDB type by column. `keys`: SQL of further columns by name. `where`: the source, for error messages.
    """
    expressions = [
        f"{quote_identifier(column)} AS {quote_identifier(group(position))}"
        for position, column in enumerate(schema.group_by)
    ]
    expressions += label_id_and_keys(schema, types, keys)
    for field in schema.fields:
        encoder = make_encoder(field)
        for position, column in enumerate(field.columns):
            value = encoder.event_sql(column, types[column], where)
            expressions.append(f"{value} AS {quote_identifier(channel(field.name, position))}")
    return expressions


def sorted_columns(schema: Schema, types: Mapping[str, str]) -> list[str]:
    """Replacements in the sorted `event_columns`, such as timestamps as seconds."""
    replaced = []
    for field in schema.fields:
        encoder = make_encoder(field)
        for position, column in enumerate(field.columns):
            name = quote_identifier(channel(field.name, position))
            value = encoder.sorted_event_sql(name, types[column])
            if value is not None:
                replaced.append(f"{value} AS {name}")
    return replaced


def event_order(schema: Schema, types: Mapping[str, str]) -> list[str]:
    """ORDER BY list of the events of a group.

    Text means numbers or times. Any other cell ends the query with an error (`UNORDERED`), as the order of its letters
    is hardly that of the events, unless `schema.order_format` says how to read it.
    """
    order = []
    for column in schema.order_by:
        value = plain(column, types[column], EVENTS)
        if types[column] not in TEXT_TYPES:
            order.append(value)
        elif schema.order_format == AS_TEXT:
            order += [seconds_sql(value), value]
        else:
            pattern = schema.order_format
            seconds = seconds_sql(value) if pattern is None else formatted_seconds_sql(value, pattern)
            text = (
                f"concat('{UNORDERED}', {quote_literal(column)}, chr(31), left({value}, {SHOWN_CHARACTERS}), chr(31))"
            )
            order.append(f"COALESCE({seconds}, CASE WHEN NOT {is_missing_sql(value)} THEN error({text}) END)")
    return order
