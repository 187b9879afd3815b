"""Shapes of state that is read from a file, such as a manifest, and errors that name what does not fit.

A shape is a type, or

- `[shape]`: a list of such values,
- `{"key": shape, …}`: a mapping with at least these keys,
- `Each(shape)`: a mapping of texts to such values,
- `(shape, None, …)`: any of these,
- `Where(shape, check, text)`: such a value for which `check` is true.

Not pydantic: a service that loads a bundle would import it for these checks alone, which takes as long as a quarter of
everything else that it imports.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from seqclf.errors import InputError

TYPES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    dict: "a mapping",
    list: "a list",
}
LARGEST = 1e300  # larger numbers overflow in the first calculation


@dataclass(frozen=True)
class Each:
    """A mapping of texts to values of `shape`."""

    shape: Any


@dataclass(frozen=True)
class Where:
    """A value of `shape` for which `check` is true. `text` completes "must be …" in the error."""

    shape: Any
    check: Callable[[Any], bool]
    text: str


COUNT = Where(int, lambda value: value >= 0, "a whole number from 0")
SIZE = Where(int, lambda value: 1 <= value <= 2**31, "a whole number from 1")
POSITIVE = Where(float, lambda value: value > 0, "a number above 0")


def one_of(*values: str) -> Where:
    """Return the shape of a text that is one of `values`."""
    return Where(str, lambda value: value in values, f"one of {', '.join(values)}")


def require(value: Any, shape: Any, key: str = "") -> None:
    """Raise InputError, which names the key inside `value`, unless it is of the shape.

    >>> require({"name": "a", "sizes": [1, 2]}, {"name": str, "sizes": [SIZE]})
    >>> require({"name": "a", "sizes": [1, 0]}, {"name": str, "sizes": [SIZE]})
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: sizes[1]: must be a whole number from 1
    """
    if isinstance(shape, Where):
        if not _fits(value, shape.shape) or not shape.check(value):
            raise InputError(key or None, f"must be {shape.text}")
    elif isinstance(shape, Each):
        require(value, dict, key)
        for name, entry in value.items():
            require(name, str, f"a key of {key}")
            require(entry, shape.shape, _below(key, name))
    elif isinstance(shape, dict):
        require(value, dict, key)
        for name, entry_shape in shape.items():
            if name not in value:
                raise InputError(_below(key, name), "missing")
            require(value[name], entry_shape, _below(key, name))
    elif isinstance(shape, list):
        require(value, list, key)
        if shape[0] is str and all(type(entry) is str for entry in value):
            return  # the quick way for vocabularies, which are long
        for index, entry in enumerate(value):
            require(entry, shape[0], f"{key}[{index}]")
    elif isinstance(shape, tuple):
        if not any(_fits(value, option) for option in shape):
            require(value, shape[0], key)
    elif not _is_instance(value, shape):
        raise InputError(key or None, f"must be {TYPES.get(shape, 'null')}")


def _fits(value: Any, shape: Any) -> bool:
    try:
        require(value, shape)
    except InputError:
        return False
    return True


def _is_instance(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type, where neither a boolean is a number nor infinity a finite one."""
    if kind is None:
        return value is None
    if kind is float:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) < LARGEST and math.isfinite(value)
    if kind is dict:
        return isinstance(value, Mapping)
    if kind is list:
        return isinstance(value, (list, tuple))
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


@contextmanager
def error_context(where: object, remedy: str) -> Iterator[None]:
    """Add the file and the remedy to an InputError that is raised inside."""
    try:
        yield
    except InputError as error:
        raise error.within(where, remedy) from None


def parse_json(content: bytes) -> Any:
    """Return the content of a JSON file. Raises InputError where it is no JSON in UTF-8, or nested too deeply."""
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InputError(None, f"is not readable JSON ({type(error).__name__})") from None
