"""Check for keys of an event table that the config does not name: `data.group_by` and `data.order_by`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.config.override_text import argument
from seqclf.data.encoding.declaration import MIN_MEAN_WORDS
from seqclf.data.options import DataOptions
from seqclf.data.ragged import is_list
from seqclf.data.reading.reader import SourceReader
from seqclf.data.schema.casts import plain, quote_identifier, time_in_seconds
from seqclf.data.schema.cell_types import is_text, looks_like_lists, looks_timed, mean_words
from seqclf.errors import InputError

MIN_GROUPS = 10  # minimum number of groups of an event table
MIN_EVENTS = 3  # minimum mean number of different times per group; a row and its duplicates have one time
TIME_NAME = re.compile(r"time|date|stamp|epoch|(^|_)(ts|at)($|_)", re.IGNORECASE)  # names of columns of Unix times
YEARS_1990_TO_2100 = (631_152_000, 4_102_444_800)  # in seconds since 1970


def check_event_keys(reader: SourceReader, sample: pa.Table, options: DataOptions) -> None:
    """Raise InputError if a key of an event table seems to be forgotten. docs/data.md states the rules.

    `reader`: reader of the training source. `sample`: first rows of the training source.
    """
    cells = {name: sample.column(name) for name in sample.column_names if name not in (options.label, *options.group_by)}
    times = [name for name in cells if _is_time(name, cells[name])]
    others = [name for name in cells if name not in times]
    if options.rows is not None or not times:
        return
    if options.group_by and not options.order_by:
        _require_time_order(reader, times, options.group_by)
    elif options.fields is None and not options.group_by:
        if not any(_holds_tokens(reader, name, cells[name], options.list_separator) for name in others):
            names = [options.id] if options.labels and options.id else [name for name in others if _is_id(cells[name])]
            _require_sequences(reader, names, times, options)


def _is_time(name: str, cells: pa.ChunkedArray) -> bool:
    """Return True for times, for texts that look like times, and for Unix times in a column that is named like one."""
    if pa.types.is_temporal(cells.type) or looks_timed(cells):
        return not pa.types.is_duration(cells.type)
    try:
        low, high = pc.min_max(cells.cast(pa.float64())).as_py().values()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # the cells are not numbers
        return False
    start, end = YEARS_1990_TO_2100
    in_range = low is not None and any(start * per_s <= low and high <= end * per_s for per_s in (1, 1e3, 1e6, 1e9))
    return in_range and TIME_NAME.search(name) is not None


def _holds_tokens(reader: SourceReader, name: str, cells: pa.ChunkedArray, separator: str | None) -> bool:
    """Return True if a cell is a sequence: a list, or a text of several words that is mostly unlike other cells."""
    if not is_text(cells.type) or looks_like_lists(cells, separator):
        return is_list(cells.type) or is_text(cells.type)
    column = quote_identifier(name)
    unlike = f"SELECT 2 * approx_count_distinct({column}) > count({column}) FROM input"
    return mean_words(cells) > MIN_MEAN_WORDS and reader.query_row(unlike)[0]


def _is_id(cells: pa.ChunkedArray) -> bool:
    """Return True for whole numbers and texts, but not for texts that spell fractions."""
    try:
        numbers = cells.cast(pa.float64()) if is_text(cells.type) else cells
    except pa.ArrowInvalid:  # words
        return True
    return pa.types.is_integer(numbers.type) or pc.all(pc.equal(pc.floor(numbers), numbers)).as_py() is True


def _require_sequences(reader: SourceReader, names: Sequence[str], times: Sequence[str], options: DataOptions) -> None:
    """Raise InputError if a column of ids and a column of times make the source an event table."""
    label = "NULL" if options.labels else quote_identifier(options.label)
    for name, time in product(names, times):
        group = quote_identifier(name)
        groups, classes, most_labels, rows, moments = reader.query_row(
            "SELECT count(*), count(DISTINCT label), max(labels), sum(events), sum(moments) FROM ("
            f"SELECT min({label}) AS label, count(DISTINCT {label}) AS labels, count(*) AS events, "
            f"count(DISTINCT {quote_identifier(time)}) AS moments FROM input WHERE {group} IS NOT NULL GROUP BY {group})"
        )
        if groups >= MIN_GROUPS and groups > classes and most_labels <= 1 and moments >= MIN_EVENTS * groups:
            keys = {"group_by": name, "order_by": time, "label": options.label}
            raise InputError(
                reader.source,
                f"looks like an event table: '{name}' repeats ({groups:,} values in {rows:,} rows), with one label for "
                f"each, and '{time}' is a time",
                f"write {' '.join(argument(f'data.{key}', value) for key, value in keys.items())}, or "
                "data.rows=sequences if each row is a sequence",
            )


def _require_time_order(reader: SourceReader, times: Sequence[str], group_by: Sequence[str]) -> None:
    """Raise InputError if columns of times change within groups, and none of them always ascends."""
    groups = ", ".join(map(quote_identifier, group_by))
    unsorted: dict[str, int] = {}  # column → number of events before which an event of their group has a later time
    for name in times:
        kind = reader.column_types[name]
        moment = time_in_seconds(plain(name, kind), kind, "second")
        falls, rises = reader.query_row(
            "SELECT count(*) FILTER (step < 0), count(*) FILTER (step > 0) FROM ("
            f"SELECT moment - lag(moment) OVER (PARTITION BY {groups} ORDER BY position) AS step FROM ("
            f"SELECT {groups}, {moment} AS moment, row_number() OVER () AS position FROM input))"
        )
        if rises and not falls:
            return
        unsorted |= {name: falls} if falls else {}
    if unsorted:
        name, falls = next(iter(unsorted.items()))
        raise InputError(
            reader.source,
            f"'{name}' is a time, and {falls:,} events have an earlier one than the event before them in their group",
            f"sort by it, {argument('data.order_by', name)}, or keep the order of the file, data.rows=events",
        )
