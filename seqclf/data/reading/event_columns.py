"""Columns of an event table as DuckDB expressions: one canonical value per token and channel, and the sort order."""

from __future__ import annotations

from seqclf.data.reading.casts import (
    WHOLE,
    WHOLE_NUMBERS,
    label_id_and_key,
    number,
    plain,
    quote_identifier,
)
from seqclf.data.reading.times import seconds_sql, time_in_seconds
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

EVENTS = "events"  # alias of the table, so that the sort can name its columns and not those of `event_columns`


def channel(field: str, position: int) -> str:
    """Name of the column that holds one channel of `field`."""
    return f"{field} {position}"


def group(position: int) -> str:
    """Name of the column that holds one of `schema.group_by`."""
    return f"group {position}"


def event_columns(schema: Schema, types: dict[str, str], where: str, key: str | None) -> list[str]:
    """SELECT list of an event table: the group, label, id and split key of each event, and a column per channel.

    `types`: DuckDB type by column. `key`: SQL of the split key. `where`: the source, for error messages.
    """
    expressions = [
        f"{quote_identifier(column)} AS {quote_identifier(group(position))}"
        for position, column in enumerate(schema.group_by)
    ]
    expressions += label_id_and_key(schema, types, key)
    for field in schema.fields:
        for position, column in enumerate(field.columns):
            value = _value(field, column, types[column], where)
            expressions.append(f"{value} AS {quote_identifier(channel(field.name, position))}")
    return expressions


def _is_timestamp(kind: str) -> bool:
    # Timestamps are sorted as they are and become seconds only afterwards (`event_seconds`): DuckDB moves a column that
    # is both sorted by and selected only once.
    return kind.startswith("TIMESTAMP")


def event_seconds(schema: Schema, types: dict[str, str]) -> list[str]:
    """Replacements in the sorted `event_columns`: timestamps as seconds."""
    times = [field for field in schema.fields if field.kind == "time" and _is_timestamp(types[field.columns[0]])]
    names = [quote_identifier(channel(field.name, 0)) for field in times]
    return [f"epoch({name}) AS {name}" for name in names]


def event_order(schema: Schema, types: dict[str, str]) -> list[str]:
    """ORDER BY list of the events of a group. Text that means a number or a time is sorted as that."""
    order = []
    for column in schema.order_by:
        value = plain(column, types, EVENTS)
        order += [seconds_sql(value), value] if types[column] in ("VARCHAR", "JSON") else [value]
    return order


def _value(field: Field, column: str, kind: str, where: str) -> str:
    """One channel of one token: null where it is missing, infinite (and so refused) where text is no number.

    Raises InputError for a column of lists. `kind`: DuckDB type of the column.
    """
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        raise InputError(
            f"{where}: column '{column}' holds {kind}, but with data.group_by a row is one event of one value "
            f"(data.fields.{field.name}={field.kind}); leave out data.group_by, or name another column"
        )
    value = plain(column, {column: kind})
    is_text = kind in ("VARCHAR", "JSON")
    if field.kind == "time":
        return value if _is_timestamp(kind) else time_in_seconds(value, kind, field.option("unit"))
    if field.kind == "number":
        return number(value) if is_text else f"TRY_CAST({value} AS DOUBLE)"
    if field.values == "integer":
        if WHOLE_NUMBERS.fullmatch(kind):
            return f"TRY_CAST({value} AS BIGINT)"
        return f"CASE WHEN {WHOLE.format(entry=f'CAST({value} AS VARCHAR)')} THEN TRY_CAST({value} AS BIGINT) END"
    return f"NULLIF(CAST({value} AS VARCHAR), '')" if is_text else f"CAST({value} AS VARCHAR)"
