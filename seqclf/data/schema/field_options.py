"""Options of field kinds: default values, and checks that need no other package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST = 2**31 - 3  # of ids, from which the unknown one and an empty slot are left out


class Option(NamedTuple):
    """Option of a field kind. Null is allowed where it is the default.

    `is_allowed`: check of a value from a config or a stored schema, thus of any type. `expected`: its text for errors.
    """

    default: Any
    is_allowed: Callable[[Any], bool]
    expected: str


def choice_option(default: Any, *values: Any) -> Option:
    """Return an option that takes one of `values`.

    >>> choice_option("sum", "sum", "mean").expected
    'sum or mean'
    """
    *first, last = [str(value) for value in values]
    return Option(default, lambda value: value in values, f"{', '.join(first)} or {last}")


def count_option(default: int | None = None) -> Option:
    """Return an option that takes a whole number from 1, such as a size: ids have 32 bits."""
    return Option(
        default, lambda value: type(value) is int and 1 <= value <= LARGEST, f"a whole number from 1 to {LARGEST}"
    )


def flag_option(default: bool) -> Option:
    """Return an option that takes true or false."""
    return Option(default, lambda value: isinstance(value, bool), "true or false")


def text_option(default: str | None = None) -> Option:
    """Return an option that takes a text."""
    return Option(default, lambda value: isinstance(value, str) and value != "", "a text of one character or more")


def positive_option(default: float | None = None) -> Option:
    """Return an option that takes a number above 0."""
    return Option(default, lambda value: type(value) in (int, float) and 0 < value < float("inf"), "a number above 0")
