"""Columns of an event table → one canonical value per step and channel, and its order, as DuckDB expressions."""

from __future__ import annotations

from seqclf.data.reading.casts import WHOLE, WHOLE_NUMBERS, beside, moment, number, plain, quote_identifier, seconds_sql
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

EVENTS = "events"  # the table, in what it is sorted by: a plain name there may be one of `event_columns`


def channel(field: str, position: int) -> str:
    """The column of an event table that holds one channel of `field`."""
    return f"{field} {position}"


def group(position: int) -> str:
    return f"group {position}"


def event_columns(schema: Schema, types: dict[str, str], where: str, key: str | None) -> list[str]:
    """The SELECT list of an event table: a row per step, a column per channel of each field. See `events.read`."""
    expressions = [
        f"{quote_identifier(column)} AS {quote_identifier(group(place))}"
        for place, column in enumerate(schema.group_by)
    ]
    expressions += beside(schema, types, key)
    for field in schema.fields:
        for position, column in enumerate(field.columns):
            value = _event(field, column, types[column], where)
            expressions.append(f"{value} AS {quote_identifier(channel(field.name, position))}")
    return expressions


def is_point_in_time(kind: str) -> bool:
    """Types that are sorted as they are and become seconds only afterwards: a column that is sorted by and also
    selected is moved once."""
    return kind.startswith("TIMESTAMP")


def event_seconds(schema: Schema, types: dict[str, str]) -> list[str]:
    """What is to be replaced in the sorted `event_columns`."""
    times = [field for field in schema.fields if field.kind == "time" and is_point_in_time(types[field.columns[0]])]
    names = [quote_identifier(channel(field.name, 0)) for field in times]
    return [f"epoch({name}) AS {name}" for name in names]


def event_order(schema: Schema, types: dict[str, str]) -> list[str]:
    """What sorts the events of a group; text is sorted as the number or the time that it means, where it means one."""
    order = []
    for column in schema.order_by:
        value = plain(column, types, EVENTS)
        order += [seconds_sql(value), value] if types[column] in ("VARCHAR", "JSON") else [value]
    return order


def _event(field: Field, column: str, kind: str, where: str) -> str:
    """One value of one step, null where it is missing; text that is no number is made infinite, to be refused."""
    if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
        raise InputError(
            f"{where}: column '{column}' holds {kind}, but with data.group_by a row is one event of one value "
            f"(data.fields.{field.name}={field.kind}); leave out data.group_by, or name another column"
        )
    value = plain(column, {column: kind})
    text = kind in ("VARCHAR", "JSON")
    if field.kind == "time":
        return value if is_point_in_time(kind) else moment(value, kind, field.option("unit"))
    if field.kind == "number":
        return number(value) if text else f"TRY_CAST({value} AS DOUBLE)"
    if field.values == "integer":
        if WHOLE_NUMBERS.fullmatch(kind):
            return f"TRY_CAST({value} AS BIGINT)"
        return f"CASE WHEN {WHOLE.format(entry=f'CAST({value} AS VARCHAR)')} THEN TRY_CAST({value} AS BIGINT) END"
    return f"NULLIF(CAST({value} AS VARCHAR), '')" if text else f"CAST({value} AS VARCHAR)"
