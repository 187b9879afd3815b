"""Functions that format numbers, labels and long lists as text, for the terminal and for pages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
NO_VALUE = "-"  # text of a cell without a value
HUGE = 1e13  # larger numbers use an exponent; timestamps in milliseconds are smaller
MAX_WARNING_CHARACTERS = 400
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def percent(share: float) -> str:
    """Format a fraction as a percentage. The texts "0%" and "100%" are used only for exactly 0 and exactly 1.

    >>> percent(0.943), percent(0.0001), percent(0.99999), percent(1)
    ('94.3%', '0.01%', '>99.9%', '100%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    if abs(share) < 0.001:
        return "<0.01%" if 0 < share < 0.0001 else f"{share:.2%}"
    return ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def probability_text(value: float) -> str:
    """Format a probability with enough digits to tell it from 0 and 1.

    >>> probability_text(0.5), probability_text(0.03124), probability_text(0.99999637)
    ('0.5', '0.03124', '0.99999637')
    """
    return f"{value:.4g}" if 0.001 <= value <= 0.999 else f"{value:.10g}"


def number(value: float) -> str:
    """Format a number with thousands separators, and below 1000 with a decimal that is not 0.

    >>> number(20050), number(27.25), number(27.0)
    ('20,050', '27.2', '27')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}".removesuffix(".0")


def plain_number(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits. Only from `HUGE` on, digits before the point are rounded.

    >>> plain_number(0.01234567), plain_number(1745980000.0), plain_number(9999.6), plain_number(3e20)
    ('0.01235', '1745980000', '10000', '3e+20')
    """
    return f"{value:.0f}" if 10 ** (digits - 1) <= abs(value) < HUGE else f"{value:.{digits}g}"


def score(value: float | None) -> str:
    """Format a score with four decimals, and an undefined score (`None`) as a dash.

    >>> score(0.5), score(None)
    ('0.5000', '-')
    """
    return NO_VALUE if value is None else f"{value:.4f}"


def shortened(value: object, most: int = 60) -> str:
    """Return the text of a value as one printable line of at most `most` characters.

    >>> shortened("a label\\nof two lines")
    'a label of two lines'
    >>> shortened("a label of many words", most=12)
    'a label of…'
    """
    printable = "".join(character if character.isprintable() else " " for character in str(value))
    line = " ".join(printable.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def label_text(label: str, most: int = 60) -> str:
    """Return a label as one line of at most `most` characters, in quotes if its spaces are easy to overlook.

    >>> label_text("a label"), label_text(" a"), label_text("a\\u00a0b"), label_text("two  spaces", most=8)
    ('a label', "' a'", "'a\\\\xa0b'", "'two  s…")
    """
    text = shortened(label, len(label)) if label == " ".join(label.split()) else repr(label)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def printable(text: object, keep: str = "") -> str:
    """Replace each control character of a text that is not in `keep` by �, and direction marks, which reverse texts.

    >>> printable("two\\nlines\\x07", keep="\\n")
    'two\\nlines�'
    """
    return CONTROL.sub(lambda match: match[0] if match[0] in keep else "�", str(text))


def head_and_tail_text(text: str, most: int) -> str:
    """Keep the first and the last characters of a text, and write the number of omitted characters between them.

    >>> head_and_tail_text("a long text of many words", most=10)
    'a long […15 characters…] ords'
    """
    if len(text) <= most:
        return text
    last = most * 2 // 5
    return f"{text[: most - last]} […{len(text) - most:,} characters…] {text[-last:]}"


def enumeration(names: Sequence[str]) -> str:
    """Return names as part of a sentence.

    >>> enumeration(["n-grams", "statistics", "kernels"])
    'n-grams, statistics and kernels'
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def shown_path(path: Path) -> str:
    """Return a path as a command takes it: relative to the working folder, if the path is below this folder.

    >>> shown_path(Path.cwd() / "runs" / "first"), shown_path(Path("/data/runs/first"))
    ('runs/first', '/data/runs/first')
    """
    path, working_folder = path.absolute(), Path.cwd()
    return str(path.relative_to(working_folder) if path.is_relative_to(working_folder) else path)


def listed(values: Sequence[object], most: int = 8) -> str:
    """Join the first `most` values with commas. If there are more values, append the total number of values.

    >>> listed(["a", "b", "c"], most=2)
    'a, b, … 3 in all'
    """
    shown = ", ".join(shortened(value, 40) for value in values[:most])
    return f"{shown}, … {len(values):,} in all" if len(values) > most else shown


def warning_lines(
    warnings: Sequence[str], most: int | None = None, characters: int = MAX_WARNING_CHARACTERS
) -> list[str]:
    """Shorten each warning to `characters`, and keep only the first `most`, with a last line that counts the others.

    >>> warning_lines(["a", "b", "c"], most=2)
    ['a', 'b', 'and 1 more warning']
    """
    shown = [shortened(line, characters) for line in warnings[:most]]
    left_out = len(warnings) - len(shown)
    return [*shown, f"and {left_out:,} more warning{'s' if left_out > 1 else ''}"] if left_out else shown


def head_and_tail(items: Sequence[Item], most: int) -> tuple[Sequence[Item], int, Sequence[Item]]:
    """Return the first items, the number of omitted items, and the last ones: a line of `most` is left for the number.

    >>> head_and_tail(range(10), most=4)
    (range(0, 2), 7, range(9, 10))
    """
    if len(items) <= most:
        return items, 0, items[:0]
    last = (most - 1) // 3
    first = most - 1 - last
    return items[:first], len(items) - first - last, items[len(items) - last :]
