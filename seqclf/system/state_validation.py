"""Reading of JSON and YAML files, and validation of their nested values, such as the manifest of a bundle.

A shape describes the values that are valid. A shape is one of the following:

- a type, such as `int`: a value of that type,
- `[shape]`: a list of values of that shape,
- `{"key": shape, …}`: a mapping with at least these keys,
- `Each(shape)`: a mapping of strings to values of that shape,
- `(shape, None, …)`: a value of any of these shapes,
- `Where(shape, check, text)`: a value of that shape for which `check` returns True; else it "must be" `text`.

The import of pydantic would take a prediction service a quarter longer, which needs it for nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
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
LARGEST = 1e300  # limit of the absolute value of a number, because calculations with larger numbers may overflow
MAX_BYTES = 1_000_000_000  # a larger file is not parsed; vocabularies of millions of long tokens have a fifth of it
MAX_YAML_BYTES = 2_000_000  # PyYAML without its C library parses 250 kB per second
MAX_DEPTH = 100  # files that seqclf writes have less than 10 levels, and Python's recursion ends at 1000
CONTAINERS = frozenset({dict, list, tuple})  # types of nested values that a parser returns


@dataclass(frozen=True)
class Each:
    shape: Any


@dataclass(frozen=True)
class Where:
    shape: Any
    check: Callable[[Any], bool]
    text: str


COUNT = Where(int, lambda value: value >= 0, "a whole number from 0")
SIZE = Where(int, lambda value: 1 <= value <= 2**31, "a whole number from 1")
SHARE = Where(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")
POSITIVE = Where(float, lambda value: value > 0, "a number above 0")


def one_of(*values: str) -> Where:
    """Return the shape of a string that must be one of `values`."""
    return Where(str, lambda value: value in values, f"one of {', '.join(values)}")


def require(value: Any, shape: Any, key: str = "") -> None:
    """Raise an InputError with the invalid key if `value` is not valid for the shape `shape`.

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
            return  # shortcut for vocabularies, which are long lists of strings
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
    """Booleans, NaN and infinity do not count as numbers."""
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
    """Add the location `where` and the remedy to an InputError that is raised in the `with` block."""
    try:
        yield
    except InputError as error:
        raise error.within(where, remedy) from None


def parse_json(content: bytes) -> Any:
    """Parse the content of a JSON file. Raises InputError if the content is not UTF-8 JSON, or is nested too deeply."""
    try:
        return _bounded(json.loads(content.decode()), len(content))
    except (ValueError, RecursionError) as error:
        raise InputError(None, f"is not readable JSON ({type(error).__name__})") from None


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises InputError if it is too large, not UTF-8 JSON or nested too deeply."""
    with error_context(path, ""):
        return parse_json(_content(path, MAX_BYTES))


def read_yaml(path: Path) -> Any:
    """Read a YAML file. Raises InputError if it is too large, not YAML, nested too deeply or a bomb of aliases."""
    import yaml  # imported here, because predictions need no YAML

    def number(loader: Any, node: Any) -> Any:
        if ":" in node.value:
            raise ValueError("a number of base 60, such as 1:30, which takes quadratic time")
        return getattr(loader, f"construct_yaml_{node.tag.rpartition(':')[2]}")(node)

    loader: Any = type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {})
    for kind in ("int", "float"):
        loader.add_constructor(f"tag:yaml.org,2002:{kind}", number)
    with error_context(path, ""):
        content = _content(path, MAX_YAML_BYTES)
        try:
            return _bounded(yaml.load(content, loader), MAX_YAML_BYTES)
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
            raise InputError(None, f"is not readable YAML ({type(error).__name__})") from None


def _content(path: Path, most: int) -> bytes:
    if path.stat().st_size > most or not path.is_file():  # a device or a FIFO could be read without end
        raise InputError(None, f"is not a file of at most {most // 1_000_000} MB")
    return path.read_bytes()


def _bounded(value: Any, most: int) -> Any:
    """An alias of YAML repeats a value without memory, so a small file may have more values than memory can hold."""
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH):
        nested = [entry.values() if isinstance(entry, dict) else entry for entry in level]
        most -= sum(map(len, nested))
        if most < 0:
            break
        level = [entry for entry in chain.from_iterable(nested) if type(entry) in CONTAINERS]
        if not level:
            return value
    raise ValueError("is nested too deeply, or has too many values")
