"""Columns with one value per sequence: static fields, and times, unless they are keys of events that were forgotten."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import MIN_MEAN_WORDS, free_name
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.list_encoder import infer_values
from seqclf.data.reading.reader import SourceReader
from seqclf.data.schema.casts import key_sql, plain, quote_identifier, time_in_seconds
from seqclf.data.schema.cell_types import MAX_CODES, is_text, looks_like_lists, looks_timed, mean_words
from seqclf.data.schema.schema import Field, Schema
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.typed_text import argument

MAX_CATEGORIES = 1000  # distinct values of a category
MIN_REPEATS = 2  # sequences for each distinct value of a category or whole number; an id has fewer
CHANCE = 1e-6  # probability of a column of tokens that never varies within a sequence


class ValueCounts(NamedTuple):
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
    group_keys = {f"key {at}": sample.column(name) for at, name in enumerate(schema.group_by)}
    first = pa.table({**group_keys, **{f"value {name}": sample.column(name) for name in names}})
    counted = [(f"value {name}", "count_distinct", pc.CountOptions(mode="all")) for name in names]
    counts = first.group_by(list(group_keys)).aggregate(counted)
    names = [name for name in names if pc.max(counts.column(f"value {name}_count_distinct")).as_py() == 1]
    if not names:
        return []
    constant = []
    for identifier in map(quote_identifier, names):
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


def _values(reader: SourceReader, name: str) -> ValueCounts:
    value = plain(name, reader.column_types[name])
    counts = f"SELECT CAST({value} AS VARCHAR) AS value, count(*) AS n FROM input GROUP BY {value}"
    whole = r"count(*) FILTER (regexp_full_match(value, '\s*[+-]?\d+\s*'))"
    missing = "coalesce(sum(n) FILTER (value IS NULL), 0)"
    row = reader.query_row(f"SELECT sum(n), {missing}, max(n), count(value), {whole} FROM ({counts})")
    return ValueCounts(*map(int, row))


def _static_field(
    name: str, cells: pa.ChunkedArray, values: ValueCounts, sequences: int, taken: set[str]
) -> Field | str:
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


def _is_constant_beyond_chance(values: ValueCounts, sequences: int) -> bool:
    """A further token of a sequence equals the first one with at most the proportion of the most frequent value."""
    further = values.rows - sequences
    return values.most < values.rows and further * math.log(values.most / values.rows) < math.log(CHANCE)


MIN_GROUPS = 10  # minimum number of groups of an event table
MIN_EVENTS = 3  # minimum mean number of different times per group; a row and its duplicates have one time
UNIX_TIME = re.compile(r"1\d{9}(\d{3}){0,3}(\.\d*)?")  # seconds, or milli-, micro- or nanoseconds, of 2001 to 2033
# 20.11.2024, Nov 20
OTHER_TIME = re.compile(r"\d{1,4}([-/. ])(\d{1,2}|[A-Za-z]{3,9})\1\d{1,4}|[A-Za-z]{3,9} \d{1,2}\b")
TIME_NAME = re.compile(r"time|date|stamp|epoch|(^|_)(ts|at)($|_)", re.IGNORECASE)  # names of columns of Unix times


def times_of_sequences(reader: SourceReader, sample: pa.Table, options: DataOptions) -> list[str]:
    """Return the columns with one time per sequence, which are not free text. docs/data.md states the rules.

    `sample`: first rows of the training source. Raises InputError if a key of an event table seems to be forgotten.
    """
    roles = {options.label, *options.group_by}
    cells = {name: sample.column(name) for name in sample.column_names if name not in roles}
    texts = [name for name in cells if is_text(cells[name].type)]
    lists = [name for name in texts if looks_like_lists(cells[name], options.list_separator)]
    lists += [name for name in cells if pa.types.is_nested(cells[name].type)]
    times = [name for name in cells if name not in lists and _is_time(name, cells[name])]
    if options.rows is not None or not times:
        return []
    if options.group_by:
        return [] if options.order_by else _require_time_order(reader, times, options.group_by)
    if not lists and not options.fields:
        names = [name for name in cells if name not in times and not pa.types.is_floating(cells[name].type)]
        distinct = (f"approx_count_distinct({quote_identifier(name)})" for name in names)
        rows, *counts = reader.query_row(f"SELECT {', '.join(['count(*)', *distinct])} FROM input")
        repeating = [name for name, count in zip(names, counts, strict=True) if 2 * count <= rows]
        free_texts = [name for name in texts if name not in times and mean_words(cells[name]) > MIN_MEAN_WORDS]
        if options.labels or set(free_texts) <= set(repeating):
            _require_sequences(reader, [str(options.id)] if options.labels else repeating, times, options)
    return times


def _is_time(name: str, cells: pa.ChunkedArray) -> bool:
    """Return True for times and ISO texts, and in a column with the name of a time for other dates and Unix times."""
    if pa.types.is_temporal(cells.type):
        return not pa.types.is_duration(cells.type) and not pa.types.is_time(cells.type)
    if looks_timed(cells):  # a clock time or a duration does not sort events
        return any("-" in str(text) for text in cells.drop_null().to_pylist())
    texts = list(map(str, cells.drop_null().to_pylist())) if TIME_NAME.search(name) else []
    return bool(texts) and (all(map(UNIX_TIME.fullmatch, texts)) or all(map(OTHER_TIME.search, texts)))


def _require_sequences(reader: SourceReader, names: Sequence[str], times: Sequence[str], options: DataOptions) -> None:
    label = "NULL" if options.labels else quote_identifier(options.label)
    for name, time in product(names, times):
        group, moment = quote_identifier(name), quote_identifier(time)
        groups, classes, most_labels, rows, moments = reader.query_row(
            "SELECT count(*), count(DISTINCT label), max(labels), sum(events), sum(moments) FROM (SELECT "
            f"min({label}) AS label, count(DISTINCT {label}) AS labels, count(*) AS events, count(DISTINCT {moment}) "
            f"AS moments FROM input WHERE {group} IS NOT NULL GROUP BY {group})"
        )
        if groups >= max(MIN_GROUPS, classes + 1) and most_labels <= 1 and moments >= MIN_EVENTS * groups:
            keys = (("group_by", name), ("order_by", time), ("label", options.label))
            written = " ".join(argument(f"data.{key}", value) for key, value in keys)
            repeats = f"'{name}' repeats ({groups:,} in {rows:,} rows) with one label, '{time}' is a time"
            remedy = f"write {written}, or data.rows=sequences if each row is a sequence"
            raise InputError(reader.source, f"looks like events: {repeats}", remedy)


def _require_time_order(reader: SourceReader, times: Sequence[str], group_by: Sequence[str]) -> list[str]:
    """Return []. Raise InputError if columns of times change within groups, and none of them always ascends."""
    groups = [f"group_{place}" for place in range(len(group_by))]
    selected = ", ".join(f"{quote_identifier(name)} AS {group}" for name, group in zip(group_by, groups, strict=True))
    steps = {}  # column → events that are earlier than the one before in their group, later than it, and with a time
    for name in times:
        moment = time_in_seconds(plain(name, kind := reader.column_types[name]), kind, "second")
        rows = f"SELECT {selected}, {moment} AS moment, row_number() OVER () AS position FROM input"
        step = f"moment - lag(moment) OVER (PARTITION BY {', '.join(groups)} ORDER BY position)"
        steps[name] = reader.query_row(
            "SELECT count(*) FILTER (step < 0), count(*) FILTER (step > 0), count(moment) "
            f"FROM (SELECT moment, {step} AS step FROM ({rows}))"
        )
    for name, (falls, _, known) in steps.items():
        if not known:  # texts of another notation, which need a format
            remedy = f"{argument('data.order_by', name)} data.order_format=%d.%m.%Y, or keep the order of the file, "
            raise InputError(reader.source, f"'{name}' looks like times", f"sort by it, {remedy}data.rows=events")
        if falls and not any(later and not earlier for earlier, later, _ in steps.values()):
            problem = f"'{name}' is a time, and {falls:,} events are earlier than the event before in their group"
            remedy = f"sort by it, {argument('data.order_by', name)}, or keep the order of the file, data.rows=events"
            raise InputError(reader.source, problem, remedy)
    return []
