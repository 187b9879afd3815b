"""Options of field kinds. An option has a default value and a check of the value in a config."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

LARGEST = 2**31 - 3  # maximum number of ids in int32, without the ids of unknown values and empty slots


class Option(NamedTuple):
    """An option of a field kind, null only if null is the default.

    `is_allowed`: function that returns True for a valid value, of values of any type, because a config or a stored
    schema holds it. `expected`: description of valid values in errors.
    """

    default: Any
    is_allowed: Callable[[Any], bool]
    expected: str


def choice_option(default: Any, *values: Any) -> Option:
    """Return an option whose value must be one of `values`.

    >>> choice_option("sum", "sum", "mean").expected
    'sum or mean'
    """
    *first, last = [str(value) for value in values]
    return Option(default, lambda value: value in values, f"{', '.join(first)} or {last}")


def count_option(default: int | None = None) -> Option:
    """Return an option whose value must be an integer from 1 to `LARGEST`, such as the size of a vocabulary."""
    return Option(
        default, lambda value: type(value) is int and 1 <= value <= LARGEST, f"a whole number from 1 to {LARGEST}"
    )


def flag_option(default: bool) -> Option:
    """Return an option whose value must be true or false."""
    return Option(default, lambda value: isinstance(value, bool), "true or false")


def text_option(default: str | None = None) -> Option:
    """Return an option whose value must be a text that is not empty."""
    return Option(default, lambda value: isinstance(value, str) and value != "", "a text of one character or more")


def numbers_option() -> Option:
    """Return an option whose value must be a list of finite numbers, such as [-999, 1e30].

    >>> [numbers_option().is_allowed(value) for value in ([-999, 1e30], [], -999, ["-999"], [True])]
    [True, True, False, False, False]
    """
    return Option((), _holds_finite_numbers, "a list of numbers, such as [-999]")


def _holds_finite_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        type(entry) in (int, float) and abs(entry) <= sys.float_info.max for entry in value
    )


def positive_option(default: float | None = None) -> Option:
    """Return an option whose value must be a finite number above 0."""
    return Option(default, lambda value: type(value) in (int, float) and 0 < value < float("inf"), "a number above 0")
