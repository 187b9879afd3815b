"""Infer the type of a column from its first cells: text, or lists of integers, numbers, strings, vectors or times."""

from __future__ import annotations

import itertools
import json
import re
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list

MAX_CODES = 20  # maximum number of distinct integers that are always codes
MAX_CLOCK_CODES = 100  # if lists ascend and have more distinct integers than this, the integers are times, not codes
MIN_FRACTION_SHARE = 0.1  # integers are measurements if more than this fraction of lists contains decimals
TIME = re.compile(r"\d{4}-\d\d?-\d\d?([T ]\d.*)?|\d+:\d\d(:\d\d(\.\d+)?)?")
COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "?")
MAX_ODD_SHARE = 0.05  # in a column of numbers or times, up to this fraction of cells may hold other text
MAX_INTEGER = 2**63 - 1
CODE = re.compile(r"\s*([+-]?0[0-9_]+|[+][0-9_]+|-?[0-9]+(_[0-9]+)+)\s*")  # a whole number that no program writes so
Result = TypeVar("Result")


class Spelled(str):
    """An element of a text cell, whose spelling says what it is. A text of another format remains a text."""


def is_typed_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Spelled)


def remember_last(
    function: Callable[[pa.ChunkedArray, str | None], Result],
) -> Callable[[pa.ChunkedArray, str | None], Result]:
    """Cache the last result of a function of a column, which several field kinds inspect in turn and slowly."""
    last: list[tuple[weakref.ref[pa.ChunkedArray], str | None, Result]] = []

    @wraps(function)
    def remembering(cells: pa.ChunkedArray, separator: str | None) -> Result:
        if not last or last[0][0]() is not cells or last[0][1] != separator:
            last[:] = [(weakref.ref(cells), separator, function(cells, separator))]
        return last[0][2]

    return remembering


def is_text(kind: pa.DataType) -> bool:
    """Return True for strings and for extension types such as JSON and UUID, which DuckDB returns as text."""
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or isinstance(kind, pa.BaseExtensionType)


def _texts(cells: pa.ChunkedArray) -> list[str]:
    return [str(cell).strip() for cell in cells.to_pylist() if cell is not None and str(cell).strip()]


def looks_bracketed(cells: pa.ChunkedArray) -> bool:
    """Return True if more than half of the texts are in square brackets."""
    texts = _texts(cells) if is_text(cells.type) else []
    return bool(texts) and 2 * sum(text[0] == "[" and text[-1] == "]" for text in texts) > len(texts)


def looks_like_lists(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """Return True if the texts are bracketed lists, or if at least one text contains the separator."""
    return looks_bracketed(cells) or (separator is not None and any(separator in text for text in _texts(cells)))


def looks_timed(cells: pa.ChunkedArray) -> bool:
    """Return True if almost all texts are dates, dates with times, or times of day."""
    texts = _texts(cells) if is_text(cells.type) else []
    return bool(texts) and sum(not TIME.fullmatch(text) for text in texts) <= MAX_ODD_SHARE * len(texts)


def has_decimal_commas(cells: pa.ChunkedArray) -> bool:
    """Return True if almost all texts are numbers, and at least one number has a decimal comma, such as 1,5."""
    texts = [text for text in _texts(cells) if not is_missing(text)] if is_text(cells.type) else []
    odd = sum(not COMMA_NUMBER.fullmatch(text) and not is_number(text) for text in texts)
    return any("," in text for text in texts) and odd <= MAX_ODD_SHARE * len(texts)


def mean_words(cells: pa.ChunkedArray) -> float:
    """Return the mean number of words of the texts that are not blank."""
    texts = _texts(cells)
    return sum(len(text.split()) for text in texts) / max(1, len(texts))


def split_cell(text: str, separator: str | None) -> list[Any]:
    """Split a text cell, written in brackets, such as `[1, 2]`, or with a separator, into the elements of its list."""
    if separator is None or text.startswith("["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):  # [a, b] and ['a', 'b'] are not valid JSON
            inner = re.findall(r"\[([^\[\]]*)\]", text[1:-1]) if text.startswith("[[") else []
            if inner:
                return [[_element(part) for part in values.split(",") if part.strip()] for values in inner]
            parsed = [_element(part) for part in text.strip("[]").split(",")]
        return parsed if isinstance(parsed, list) else [parsed]
    parts = text.split() if separator.isspace() else [part.strip() for part in text.split(separator)]
    return list(map(Spelled, parts))


def _element(part: str) -> str:
    """Return an element of a bracketed list, without its quotes. An element with quotes is a text."""
    part, bare = part.strip(), part.strip(" '\"")
    return Spelled(part) if part == bare else bare


@remember_last
def infer_elements(cells: pa.ChunkedArray, separator: str | None) -> tuple[str, int]:
    """Return the most common element type of lists, and the number of values per token.

    The type is `integer` for codes, `string`, `number` or `vector`. Integers are measurements, of the type `number`, if
    one is negative, if those of every list ascend like times, or if more than a tenth of the lists contain fractions,
    whose rows would be rejected. Integers beyond 64 bits, text cells such as 007 or 1_1, and texts are `string`.
    """
    return element_type_of(list_cells(cells, separator))


def element_type_of(lists: list[list[Any]]) -> tuple[str, int]:
    """Return the element type and the number of values per token of lists (see `infer_elements`)."""
    kinds: dict[str, int] = {}  # element type → number of lists
    widths: dict[int, int] = {}  # width of a vector → number of vectors
    distinct: set[int] = set()  # distinct integers
    for entries in lists:
        present = [entry for entry in entries if not is_missing(entry)]
        kind = max((_element_kind(entry, distinct, widths) for entry in present), default=None)
        if kind is not None:
            kinds[kind[1]] = kinds.get(kind[1], 0) + 1
    if not kinds:
        return "string", 1
    common = max(kinds, key=lambda name: kinds[name])
    if common == "integer":
        # In a list of JSON or of a table, a word such as NA is a text like any other.
        has_words = any(is_typed_text(entry) for entries in lists for entry in entries)
        has_codes = any(is_odd_text(entry) for entries in lists for entry in entries)
        if has_words or has_codes or max(distinct) > MAX_INTEGER:
            common = "string"
        elif _are_measurements(distinct, kinds.get("number", 0) / sum(kinds.values()), lists):
            common = "number"
    width = max(widths, key=lambda size: widths[size]) if common == "vector" and widths else 1
    return common, width


def _spelled(entry: Any) -> Any:
    """Return the texts of lists as parts of text cells (see `SourceReader.sample`)."""
    if isinstance(entry, list):
        return list(map(_spelled, entry))
    return Spelled(entry) if isinstance(entry, str) else entry


@remember_last
def list_cells(cells: pa.ChunkedArray, separator: str | None) -> list[list[Any]]:
    """Return the cells as Python lists. Text cells are split. Lists of times, without a Python type, give []."""
    if is_list(cells.type):
        kind = cells.type.value_type
        if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.json":
            return [
                [None if entry is None else json.loads(entry) for entry in cell] for cell in cells.to_pylist() if cell
            ]
        rows = [] if pa.types.is_temporal(kind) else [cell for cell in cells.to_pylist() if cell]
        return [_spelled(row) for row in rows] if "large_string" in str(kind) else rows
    return [split_cell(text, separator) for text in _texts(cells)] if is_text(cells.type) else []


def _are_measurements(integers: set[int], fraction_share: float, lists: list[list[Any]]) -> bool:
    if min(integers) < 0 or fraction_share > MIN_FRACTION_SHARE:
        return True
    return len(integers) > MAX_CLOCK_CODES and _never_fall(lists)


def is_missing(entry: Any) -> bool:
    """Return True for null and for words that mean a missing value."""
    return entry is None or (isinstance(entry, str) and entry.strip().lower() in MISSING_WORDS)


def is_odd_text(entry: Any) -> bool:
    """Return True for a text such as 007, +7 or 1_1, of which a number would be another text."""
    return isinstance(entry, str) and CODE.fullmatch(entry) is not None


def is_number(entry: Any) -> bool:
    """Return True for numbers and for texts that spell a number."""
    try:
        float(entry)
    except (TypeError, ValueError):
        return False
    return not isinstance(entry, bool)


def holds_missing(cells: pa.ChunkedArray) -> bool:
    """Return True if a column of values has null, NaN, or a word that means a missing value, such as NA."""
    has_nan = pa.types.is_floating(cells.type) and pc.any(pc.is_nan(cells)).as_py()
    return bool(cells.null_count or has_nan) or (is_text(cells.type) and any(map(is_missing, cells.to_pylist())))


def holds_times(cells: pa.ChunkedArray, separator: str | None) -> bool:
    """Return True if all elements of the lists are, or look like, dates or times."""
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
    try:
        return all(all(int(a) <= int(b) for a, b in itertools.pairwise(entries)) for entries in lists)
    except (TypeError, ValueError):
        return False


def _element_kind(entry: Any, distinct: set[int], widths: dict[int, int]) -> tuple[int, str]:
    """Return the rank (higher is more general) and the type of an element. Add it to `distinct` or `widths`."""
    if isinstance(entry, (list, tuple)):
        widths[len(entry)] = widths.get(len(entry), 0) + 1
        return 3, "vector"
    if isinstance(entry, (bool, bytes)):  # bool is a subclass of int, and float(b"1") is 1.0
        return 2, "string"
    if is_typed_text(entry):
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
    try:
        return int(text)
    except ValueError:
        return text
