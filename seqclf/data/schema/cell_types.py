"""What the first cells of a column look like: lists or text, of integers, numbers, strings or vectors."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pyarrow as pa

MOST_CLOCK_CODES = 100
TIMED = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d.*)?|\d+:\d\d(:\d\d(\.\d+)?)?")
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "?")
LARGEST_INTEGER = 2**63 - 1


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or isinstance(kind, pa.BaseExtensionType)


def _texts(cells: pa.ChunkedArray) -> list[str]:
    return [str(cell).strip() for cell in cells.to_pylist() if cell is not None and str(cell).strip()]


def looks_bracketed(cells: pa.ChunkedArray) -> bool:
    texts = _texts(cells) if is_text(cells.type) else []
    return bool(texts) and 2 * sum(text[0] == "[" and text[-1] == "]" for text in texts) > len(texts)


def looks_like_lists(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """Bracketed in more than half of the cells; or, where a separator was named, split by it in one of them."""
    return looks_bracketed(cells) or (separator is not None and any(separator in text for text in _texts(cells)))


def looks_timed(cells: pa.ChunkedArray) -> bool:
    """Whether every text is a date, a point in time, or hours and minutes."""
    texts = _texts(cells) if is_text(cells.type) else []
    return bool(texts) and all(TIMED.fullmatch(text) for text in texts)


def mean_words(cells: pa.ChunkedArray) -> float:
    texts = _texts(cells)
    return sum(len(text.split()) for text in texts) / max(1, len(texts))


def split_cell(text: str, separator: str | None) -> list[Any]:
    """The elements of a list written inside a text cell, as the sample shows them."""
    if separator is None or text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = [part.strip() for part in text.strip("[]").split(",")]
        return parsed if isinstance(parsed, list) else [parsed]
    return text.split() if separator.isspace() else [part.strip() for part in text.split(separator)]


def look_into(cells: pa.ChunkedArray, separator: str | None) -> tuple[str, int]:
    """What most lists are made of (`integer`, `string`, `number` or `vector`), and the width of a step.

    Integers that go below zero, run upwards like a clock, or stand beside fractions are measurements, not names; those
    too large for 64 bits are names. A tenth of fractions decides: as names, that many rows would stop the run.
    """
    # Nanoseconds have no Python value.
    plain = is_list(cells.type) and not pa.types.is_temporal(cells.type.value_type)
    rows = _texts(cells) if is_text(cells.type) else [cell for cell in cells.to_pylist() if cell] if plain else []
    lists = [split_cell(row, separator) if isinstance(row, str) else row for row in rows]
    kinds: dict[str, int] = {}
    widths: dict[int, int] = {}
    distinct: set[int] = set()
    for entries in lists:
        told = [entry for entry in entries if not _is_missing(entry)]
        kind = max((_kind_of(entry, distinct, widths) for entry in told), default=None)
        if kind is not None:
            kinds[kind[1]] = kinds.get(kind[1], 0) + 1
    if not kinds:
        return "string", 1
    common = max(kinds, key=lambda name: kinds[name])
    words = any(isinstance(entry, str) and _is_missing(entry) for entries in lists for entry in entries)
    if common == "integer" and (words or max(distinct) > LARGEST_INTEGER):  # among codes NA is one more
        common = "string"
    elif common == "integer" and (
        min(distinct) < 0
        or 10 * kinds.get("number", 0) > sum(kinds.values())
        or (len(distinct) > MOST_CLOCK_CODES and _never_fall(lists))
    ):
        common = "number"
    width = max(widths, key=lambda size: widths[size]) if common == "vector" and widths else 1
    return common, width


def _is_missing(entry: Any) -> bool:
    return entry is None or (isinstance(entry, str) and entry.strip().lower() in MISSING_WORDS)


def names_missing(cells: pa.ChunkedArray) -> bool:
    """Whether a text cell says that there is no value, as NA does."""
    return is_text(cells.type) and any(isinstance(cell, str) and _is_missing(cell) for cell in cells.to_pylist())


def holds_times(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """Whether lists are of points in time, or of texts that all are."""
    if is_list(cells.type):
        kind = cells.type.value_type
        if pa.types.is_temporal(kind):
            return not pa.types.is_duration(kind)
        rows = [row for row in cells.to_pylist() if row] if is_text(kind) else []
    else:
        rows = [split_cell(text, separator) for text in _texts(cells)] if is_text(cells.type) else []
    entries = [entry for row in rows for entry in row if entry is not None]
    return bool(entries) and all(isinstance(entry, str) and TIMED.fullmatch(entry.strip()) for entry in entries)


def _never_fall(lists: list[list[Any]]) -> bool:
    """Whether every list ascends, as a clock does and a code does not."""
    try:
        return all(all(int(a) <= int(b) for a, b in itertools.pairwise(entries)) for entries in lists)
    except (TypeError, ValueError):
        return False


def _kind_of(entry: Any, distinct: set[int], widths: dict[int, int]) -> tuple[int, str]:
    """Kinds in the order in which the more general swallows the other: integer < number < string < vector."""
    if isinstance(entry, (list, tuple)):
        widths[len(entry)] = widths.get(len(entry), 0) + 1
        return 3, "vector"
    if isinstance(entry, bool):
        return 2, "string"
    if isinstance(entry, str):
        try:
            entry = int(entry)
        except ValueError:
            try:
                float(entry)
            except ValueError:
                return 2, "string"
            return 1, "number"
    if isinstance(entry, int):
        distinct.add(entry)
        return 0, "integer"
    try:
        float(entry)
    except (TypeError, ValueError):
        return 2, "string"
    return 1, "number"
