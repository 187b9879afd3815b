"""Inference from the first cells of a column: lists or text, of integers, numbers, strings, vectors or times."""

from __future__ import annotations

import itertools
import json
import re
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import pyarrow as pa

from seqclf.data.ragged import is_list

MAX_CLOCK_CODES = 100  # more different integers that only ascend are a clock, not codes
MIN_FRACTION_SHARE = 0.1  # of lists with fractions, from which on integers are measurements
TIME = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d.*)?|\d+:\d\d(:\d\d(\.\d+)?)?")
COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "?")
MAX_ODD_SHARE = 0.05  # of the cells of a column of numbers or times that may be something else; more are codes
MAX_INTEGER = 2**63 - 1
Result = TypeVar("Result")


def remember_last(
    function: Callable[[pa.ChunkedArray, str | None], Result],
) -> Callable[[pa.ChunkedArray, str | None], Result]:
    """Remember the last result: several kinds look at a column in turn, and its Python values take time to make."""
    last: list[tuple[weakref.ref[pa.ChunkedArray], str | None, Result]] = []

    @wraps(function)
    def remembering(cells: pa.ChunkedArray, separator: str | None) -> Result:
        if not last or last[0][0]() is not cells or last[0][1] != separator:
            last[:] = [(weakref.ref(cells), separator, function(cells, separator))]
        return last[0][2]

    return remembering


def is_text(kind: pa.DataType) -> bool:
    """True for strings and for extension types, such as JSON and UUID, which DuckDB returns as text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or isinstance(kind, pa.BaseExtensionType)


def _texts(cells: pa.ChunkedArray) -> list[str]:
    return [str(cell).strip() for cell in cells.to_pylist() if cell is not None and str(cell).strip()]


def looks_bracketed(cells: pa.ChunkedArray) -> bool:
    """True if more than half of the texts are in square brackets."""
    texts = _texts(cells) if is_text(cells.type) else []
    # A majority decides, as a few cells may be damaged.
    return bool(texts) and 2 * sum(text[0] == "[" and text[-1] == "]" for text in texts) > len(texts)


def looks_like_lists(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """True if texts are bracketed, or if a separator was named and splits one of them."""
    return looks_bracketed(cells) or (separator is not None and any(separator in text for text in _texts(cells)))


def looks_timed(cells: pa.ChunkedArray) -> bool:
    """True if texts, all but a few odd ones, are dates, dates with time, or times of day."""
    texts = _texts(cells) if is_text(cells.type) else []
    return bool(texts) and sum(not TIME.fullmatch(text) for text in texts) <= MAX_ODD_SHARE * len(texts)


def has_decimal_commas(cells: pa.ChunkedArray) -> bool:
    """True if texts, all but a few odd ones, are numbers with a comma, such as 1,5."""
    texts = [text for text in _texts(cells) if not is_missing(text)] if is_text(cells.type) else []
    odd = sum(not COMMA_NUMBER.fullmatch(text) and not is_number(text) for text in texts)
    return any("," in text for text in texts) and odd <= MAX_ODD_SHARE * len(texts)


def mean_words(cells: pa.ChunkedArray) -> float:
    """Return the mean number of words of the texts that are not blank."""
    texts = _texts(cells)
    return sum(len(text.split()) for text in texts) / max(1, len(texts))


def split_cell(text: str, separator: str | None) -> list[Any]:
    """Split a list written in a text cell: `[1, 2]`, or elements between separators."""
    if separator is None or text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):  # [a, b] without quotes is not JSON, neither are quotes of Python
            inner = re.findall(r"\[([^\[\]]*)\]", text[1:-1]) if text.startswith("[[") else []
            if inner:
                return [[part.strip(" '\"") for part in values.split(",") if part.strip()] for values in inner]
            parsed = [part.strip() for part in text.strip("[]").split(",")]
        return parsed if isinstance(parsed, list) else [parsed]
    return text.split() if separator.isspace() else [part.strip() for part in text.split(separator)]


@remember_last
def infer_elements(cells: pa.ChunkedArray, separator: str | None) -> tuple[str, int]:
    """Return the type of most lists' elements (`integer`, `string`, `number` or `vector`), and the width of a token.

    Integers are measurements, not codes, if one is negative, if they ascend like a clock, or if a tenth of the lists
    holds fractions. As codes, so many fractions would stop the run. Integers too large for 64 bits are strings.
    """
    lists = list_cells(cells, separator)
    kinds: dict[str, int] = {}  # type of a list → lists
    widths: dict[int, int] = {}  # width of a vector → vectors
    distinct: set[int] = set()  # integers
    for entries in lists:
        present = [entry for entry in entries if not is_missing(entry)]
        kind = max((_element_kind(entry, distinct, widths) for entry in present), default=None)
        if kind is not None:
            kinds[kind[1]] = kinds.get(kind[1], 0) + 1
    if not kinds:
        return "string", 1
    common = max(kinds, key=lambda name: kinds[name])
    if common == "integer":
        # Among codes, a word such as NA is one more code.
        has_words = any(isinstance(entry, str) and is_missing(entry) for entries in lists for entry in entries)
        if has_words or max(distinct) > MAX_INTEGER:
            common = "string"
        elif _are_measurements(distinct, kinds.get("number", 0) / sum(kinds.values()), lists):
            common = "number"
    width = max(widths, key=lambda size: widths[size]) if common == "vector" and widths else 1
    return common, width


@remember_last
def list_cells(cells: pa.ChunkedArray, separator: str | None) -> list[list[Any]]:
    """Return the cells as Python lists, those of text split.

    Lists of times are left out, as nanoseconds have no Python value.
    """
    if is_list(cells.type):
        return [] if pa.types.is_temporal(cells.type.value_type) else [cell for cell in cells.to_pylist() if cell]
    return [split_cell(text, separator) for text in _texts(cells)] if is_text(cells.type) else []


def _are_measurements(integers: set[int], fraction_share: float, lists: list[list[Any]]) -> bool:
    """True if integers are amounts or times rather than codes."""
    if min(integers) < 0 or fraction_share > MIN_FRACTION_SHARE:
        return True
    return len(integers) > MAX_CLOCK_CODES and _never_fall(lists)


def is_missing(entry: Any) -> bool:
    """True for null and for words that mean a missing value."""
    return entry is None or (isinstance(entry, str) and entry.strip().lower() in MISSING_WORDS)


def is_number(entry: Any) -> bool:
    """True for numbers, and for texts that spell one."""
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return not isinstance(entry, bool)


def names_missing(cells: pa.ChunkedArray) -> bool:
    """True if a text cell holds a word for a missing value, such as NA."""
    return is_text(cells.type) and any(isinstance(cell, str) and is_missing(cell) for cell in cells.to_pylist())


def holds_times(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """True if lists hold dates or times, or only texts that are written like them."""
    if is_list(cells.type):
        kind = cells.type.value_type
        if pa.types.is_temporal(kind):
            return not pa.types.is_duration(kind)
        rows = [row for row in cells.to_pylist() if row] if is_text(kind) else []
    else:
        rows = list_cells(cells, separator) if is_text(cells.type) else []
    entries = [entry for row in rows for entry in row if entry is not None]
    return bool(entries) and all(isinstance(entry, str) and TIME.fullmatch(entry.strip()) for entry in entries)


def _never_fall(lists: list[list[Any]]) -> bool:
    """True if every list ascends, as the readings of a clock do."""
    try:
        return all(all(int(a) <= int(b) for a, b in itertools.pairwise(entries)) for entries in lists)
    except (TypeError, ValueError):
        return False


def _element_kind(entry: Any, distinct: set[int], widths: dict[int, int]) -> tuple[int, str]:
    """Rank and name of an element's type. More general types rank higher: integer < number < string < vector.

    Adds integers to `distinct` and counts the widths of vectors in `widths`.
    """
    if isinstance(entry, (list, tuple)):
        widths[len(entry)] = widths.get(len(entry), 0) + 1
        return 3, "vector"
    if isinstance(entry, bool):  # a subclass of int
        return 2, "string"
    if isinstance(entry, str):
        entry = _parsed(entry)
    if isinstance(entry, int):
        distinct.add(entry)
        return 0, "integer"
    try:
        float(entry)
    except (TypeError, ValueError):
        return 2, "string"
    return 1, "number"


def _parsed(text: str) -> Any:
    """The integer that a text spells, else the text."""
    try:
        return int(text)
    except ValueError:
        return text
