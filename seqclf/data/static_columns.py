"""Search for columns with one value per sequence, which become static fields."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import free_name
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.list_encoder import infer_values
from seqclf.data.reading.reader import SourceReader
from seqclf.data.schema.casts import key_sql, plain, quote_identifier
from seqclf.data.schema.cell_types import MAX_CODES, looks_timed
from seqclf.data.schema.schema import Field, Schema

MAX_CATEGORIES = 1000  # distinct values of a category
MIN_REPEATS = 2  # sequences for each distinct value of a category or whole number; an id has fewer
CHANCE = 1e-6  # probability of a column of tokens that never varies within a sequence


class Values(NamedTuple):
    """Numbers of rows, of rows without a value and with the most frequent one, of distinct and whole values."""

    rows: int
    missing: int
    most: int
    distinct: int
    whole: int


def with_static(
    schema: Schema, reader: SourceReader, sample: pa.Table, skip: set[str]
) -> tuple[Schema, dict[str, str]]:
    """Return a schema with static fields for the columns with one value per sequence, and why others are ignored.

    In an event table, these are token fields that never change within a sequence, by all rows, unless by chance. In a
    table of sequences, these are columns that are no fields. Numbers, and categories of few values, become static
    fields. `sample`: first rows. `skip`: columns that stay what they are.
    """
    if schema.group_by:
        candidates = [field for field in schema.fields if _may_be_static(field, schema, skip)]
        names = _constant_columns(reader, schema, sample, [field.column for field in candidates])
    else:
        used = {column for field in schema.fields for column in field.columns} | skip
        names = [name for name in sample.column_names if name not in used]
    sequences = _sequence_count(reader, schema)
    taken, static, reasons = {field.name for field in schema.fields}, [], {}
    for name in names:
        values = _values(reader, name)
        field = _static_field(name, sample.column(name), values, sequences, taken)
        if isinstance(field, str):
            reasons[name] = field
            continue
        if schema.group_by and not _is_constant_beyond_chance(values, sequences):
            continue
        if schema.group_by:  # keeps the name of the token field
            field = replace(field, name=next(entry.name for entry in candidates if entry.column == name))
        taken.add(field.name)
        static.append(field)
    columns = {field.column for field in static}
    tokens = tuple(field for field in schema.fields if field.column not in columns)
    if not static or not tokens:  # without a field of tokens, all sequences have one event
        return schema, reasons
    ignored = tuple(name for name in schema.ignored if name not in columns)
    return replace(schema, fields=(*tokens, *static), ignored=ignored), reasons


def _may_be_static(field: Field, schema: Schema, skip: set[str]) -> bool:
    fits = field.kind in ("category", "number") and len(field.columns) == 1
    return fits and field.column not in {*schema.order_by, *skip}


def _constant_columns(reader: SourceReader, schema: Schema, sample: pa.Table, names: list[str]) -> list[str]:
    keys = [key_sql(column, reader.column_types[column]) for column in schema.group_by]
    # Most columns vary within the first sequences, and need no look at all rows.
    first = pa.table({**{f"key {at}": sample.column(name) for at, name in enumerate(schema.group_by)}})
    for name in names:
        first = first.append_column(f"value {name}", sample.column(name))
    counts = first.group_by([f"key {at}" for at in range(len(schema.group_by))]).aggregate(
        [(f"value {name}", "count_distinct", pc.CountOptions(mode="all")) for name in names]
    )
    names = [name for name in names if pc.max(counts.column(f"value {name}_count_distinct")).as_py() == 1]
    if not names:
        return []
    constant, identifiers = [], {name: quote_identifier(name) for name in names}
    for identifier in identifiers.values():
        one = f"min({identifier}) IS NOT DISTINCT FROM max({identifier})"
        constant.append(f"{one} AND count({identifier}) IN (0, count(*))")
    of_groups = ", ".join(f"{sql} AS c{at}" for at, sql in enumerate(constant))
    all_groups = ", ".join(f"bool_and(c{at})" for at in range(len(names)))
    row = reader.query_row(f"SELECT {all_groups} FROM (SELECT {of_groups} FROM input GROUP BY {', '.join(keys)})")
    return [name for name, is_constant in zip(names, row, strict=True) if is_constant]


def _sequence_count(reader: SourceReader, schema: Schema) -> int:
    if not schema.group_by:
        return reader.count_rows()
    keys = ", ".join(key_sql(column, reader.column_types[column]) for column in schema.group_by)
    return int(reader.query_row(f"SELECT count(*) FROM (SELECT 1 FROM input GROUP BY {keys})")[0])


def _values(reader: SourceReader, name: str) -> Values:
    value = plain(name, reader.column_types[name])
    counts = f"SELECT CAST({value} AS VARCHAR) AS value, count(*) AS n FROM input GROUP BY {value}"
    whole = r"count(*) FILTER (regexp_full_match(value, '\s*[+-]?\d+\s*'))"
    missing = "coalesce(sum(n) FILTER (value IS NULL), 0)"
    row = reader.query_row(f"SELECT sum(n), {missing}, max(n), count(value), {whole} FROM ({counts})")
    return Values(*map(int, row))


def _static_field(name: str, cells: pa.ChunkedArray, values: Values, sequences: int, taken: set[str]) -> Field | str:
    """Return the static field of a column, or what the column is: a constant, an id, a time, a free text or a list."""
    if values.distinct < 2:
        return "one value" if values.distinct else "empty"
    if pa.types.is_temporal(cells.type) or looks_timed(cells):
        return "a time"
    if pa.types.is_nested(cells.type) or pa.types.is_binary(cells.type):
        return "lists"
    kind = infer_values(cells)
    is_measured = pa.types.is_floating(cells.type) or kind == "number"
    # Ascending whole numbers look measured, and ids ascend in most files.
    may_be_id = not is_measured or values.whole == values.distinct
    if may_be_id and values.distinct * MIN_REPEATS > sequences:
        return "an id"
    is_number = is_measured or (kind == "integer" and values.distinct > MAX_CODES)
    if not is_number and values.distinct > MAX_CATEGORIES:
        return f"more than {MAX_CATEGORIES:,} texts"
    kind_class = NumberEncoder if is_number else CategoryEncoder
    options = kind_class.inferred_options(cells)
    if options or values.missing:
        options = {"missing": "mean" if is_number else "value"}
    field = Field(free_name(name, taken), "number" if is_number else "category", (name,), options=options, static=True)
    return kind_class.completed(field, cells, events=True)


def _is_constant_beyond_chance(values: Values, sequences: int) -> bool:
    """A further token of a sequence equals the first one with at most the proportion of the most frequent value."""
    further = values.rows - sequences
    return values.most < values.rows and further * math.log(values.most / values.rows) < math.log(CHANCE)
