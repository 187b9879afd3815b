"""Base class of dataclasses that are written as JSON, such as metrics and summaries."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from seqclf.errors import InputError

JsonObject = dict[str, Any]  # a JSON object in Python: dict key → plain value


class JsonResult:
    """Base class of dataclasses that can be converted to JSON and back.

    `OMIT_NONE`: names of fields that are left out of the JSON if they are `None`. In the JSON, null means "not
    defined", and a missing key means "not computed".

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counts(JsonResult):
    ...     rows: int
    ...     share: float | None = None
    >>> Counts(3).to_dict(), Counts.from_dict({"rows": 3})
    ({'rows': 3, 'share': None}, Counts(rows=3, share=None))
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset()

    def to_dict(self) -> JsonObject:
        """Return the fields as a dict that `json.dumps` accepts. A list of plain values is not copied."""
        # `dataclasses.asdict` copies every list, also a confusion matrix of 1,000 classes with a million numbers.
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        left_out = {name for name in self.OMIT_NONE if values[name] is None}
        return {name: to_json(value) for name, value in values.items() if name not in left_out}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Build an instance from a dict of `to_dict`, ignoring unknown keys, or raise InputError."""
        # Import pydantic only here, because the import takes 0.1 s, and prediction never calls `from_dict`.
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(dict(state))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or cls.__name__
            raise InputError(key, first["msg"]) from None


def to_json(value: Any) -> Any:
    """Return a value as plain values for JSON, with dicts in place of `JsonResult` objects."""
    if isinstance(value, JsonResult):
        return value.to_dict()
    if isinstance(value, Mapping):
        # A key may be a label that is a date, which cannot be a key in JSON.
        return {key if isinstance(key, (str, int, float)) else str(key): to_json(part) for key, part in value.items()}
    # A confusion matrix (a list of lists of integers) is not copied.
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], JsonResult):
        return [entry.to_dict() for entry in value]
    return list(value) if isinstance(value, tuple) else value


def print_result(result: Any) -> None:
    """Print a result as one JSON line, and exit with its exit code if it is not 0, or raise InputError."""
    exit_code = getattr(result, "exit_code", 0)
    if isinstance(result, JsonResult):
        result = result.to_dict()
    if result is not None:
        write_stdout(json.dumps(result, separators=(",", ":"), default=str))
    if exit_code:
        sys.exit(exit_code)


def write_stdout(text: str) -> None:
    """Print a text on stdout, of which a reader such as `head` may take only a part, or raise InputError."""
    if sys.stdout is None:
        return
    try:
        # One call writes the whole line, so that the lines of parallel jobs are not mixed.
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        # At the end of the process, Python writes the rest of the text again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError("stdout", f"cannot be written ({error.strerror})", "redirect it to another file") from None
