"""Check for keys of an event table that the config does not name: `data.group_by` and `data.order_by`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import pyarrow as pa

from seqclf.data.encoding.declaration import MIN_MEAN_WORDS
from seqclf.data.reading.reader import SourceReader
from seqclf.data.schema.casts import plain, quote_identifier, time_in_seconds
from seqclf.data.schema.cell_types import is_text, looks_like_lists, looks_timed, mean_words
from seqclf.errors import InputError
from seqclf.settings.data import DataOptions
from seqclf.settings.override_text import argument

MIN_GROUPS = 10  # minimum number of groups of an event table
MIN_EVENTS = 3  # minimum mean number of different times per group; a row and its duplicates have one time
UNIX_TIME = re.compile(r"1\d{9}(\d{3}){0,3}(\.\d*)?")  # seconds, or milli-, micro- or nanoseconds, of 2001 to 2033
OTHER_TIME = re.compile(
    r"\d{1,4}([-/. ])(\d{1,2}|[A-Za-z]{3,9})\1\d{1,4}|[A-Za-z]{3,9} \d{1,2}\b"
)  # 20.11.2024, Nov 20
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
            raise InputError(
                reader.source,
                f"looks like events: '{name}' repeats ({groups:,} in {rows:,} rows) with one label, '{time}' is a time",
                f"write {' '.join(argument(f'data.{key}', value) for key, value in keys)}, or "
                "data.rows=sequences if each row is a sequence",
            )


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
            raise InputError(
                reader.source,
                f"'{name}' is a time, and {falls:,} events are earlier than the event before in their group",
                f"sort by it, {argument('data.order_by', name)}, or keep the order of the file, data.rows=events",
            )
    return []
