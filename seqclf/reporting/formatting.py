"""Numbers and long lists as a person reads them, in the terminal and on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
NONE = "-"  # in a cell


def percent(share: float) -> str:
    """0.943 → '94.3%'. What is neither nothing nor all never reads as such: 0.0001 → '0.01%', 0.99999 → '>99.9%'."""
    if share in (0, 1):
        return f"{share:.0%}"
    if abs(share) < 0.001:
        return "<0.01%" if 0 < share < 0.0001 else f"{share:.2%}"
    return ">99.9%" if 0.9995 <= share < 1 else f"{share:.1%}"


def probability_text(value: float) -> str:
    """Digits enough to tell it from 0 and 1: 0.5, 0.0312, 0.99999637."""
    return f"{value:.4g}" if 0.001 <= value <= 0.999 else f"{value:.10g}"


def number(value: float) -> str:
    """20050 → '20,050'; of numbers that are not whole one decimal is kept, as long as it matters."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.1f}".removesuffix(".0")


def score(value: float | None) -> str:
    """Four decimals as in the verdict; a score that is not defined is a dash."""
    return NONE if value is None else f"{value:.4f}"


def shortened(value: object, most: int = 60) -> str:
    """One printable line of at most `most` characters."""
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in str(value)).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def listed(values: Sequence[object], most: int = 8) -> str:
    """The first values, and how many there are if those are not all."""
    shown = ", ".join(shortened(value, 40) for value in values[:most])
    return f"{shown}, … {len(values):,} in all" if len(values) > most else shown


def ends(items: Sequence[Item], most: int) -> tuple[Sequence[Item], int, Sequence[Item]]:
    """The first items, how many are left out, and the last few: at most `most` with a line for those left out."""
    if len(items) <= most:
        return items, 0, items[:0]
    last = (most - 1) // 3
    first = most - 1 - last
    return items[:first], len(items) - first - last, items[len(items) - last :]
