"""Columns of an event table as DuckDB expressions: one canonical value per token and channel, and the sort order."""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.data.encoding.registry import make_encoder
from seqclf.data.reading.canonical_columns import label_id_and_key
from seqclf.data.reading.casts import TEXT_TYPES, plain, quote_identifier
from seqclf.data.reading.times import seconds_sql
from seqclf.data.schema.schema import Schema

EVENTS = "events"  # alias of the table, so that the sort can name its columns and not those of `event_columns`


def channel(field: str, position: int) -> str:
    """Name of the column that holds one channel of `field`."""
    return f"{field} {position}"


def group(position: int) -> str:
    """Name of the column that holds one of `schema.group_by`."""
    return f"group {position}"


def event_columns(schema: Schema, types: Mapping[str, str], where: str, key: str | None) -> list[str]:
    """SELECT list of an event table: the group, label, id and split key of each event, and a column per channel.

    `types`: DuckDB type by column. `key`: SQL of the split key. `where`: the source, for error messages.
    """
    expressions = [
        f"{quote_identifier(column)} AS {quote_identifier(group(position))}"
        for position, column in enumerate(schema.group_by)
    ]
    expressions += label_id_and_key(schema, types, key)
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
    """ORDER BY list of the events of a group. Text that means a number or a time is sorted as that."""
    order = []
    for column in schema.order_by:
        value = plain(column, types[column], EVENTS)
        order += [seconds_sql(value), value] if types[column] in TEXT_TYPES else [value]
    return order
