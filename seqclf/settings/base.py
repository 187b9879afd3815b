"""Base classes of all settings (pydantic), and types of keys that several of them use.

A key is a field with its type, its default and, as a docstring below it, its description (see `seqclf.settings.tree`).
The types are also those of constructor arguments of networks and losses. Validation is strict: `true` is not a number,
"3" is not an integer, and unknown keys are rejected.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.override_text import label_text
from seqclf.settings.similar_names import must_be_one_of
from seqclf.settings.validation_errors import KeysOf as KeysOf
from seqclf.settings.validation_errors import input_error

Model = TypeVar("Model", bound="Options")
NOT_SET: Any = None  # default of a key that the user must set, or whose null a validator replaces


class Options(BaseModel):
    """Base class of all config models. Values are validated at construction and cannot be changed."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, validate_default=True, defer_build=True
    )


class CommandOptions(Options):
    """Base class of the models for the whole config of a command.

    The variables of an experiment file (`path: ???`) are kept as extra attributes, for the file `config.yaml` of a run.
    `TypedArguments.check_keys` rejects other unknown keys.
    """

    model_config = ConfigDict(extra="allow")


def elsewhere(path: str) -> Callable[[Any], Any]:
    """Return a function that calls the one at the dotted `path`, which needs imports that a help text does not."""
    module, _, name = path.rpartition(".")
    return lambda value: getattr(importlib.import_module(module), name)(value)


def parse_options(model: type[Model], values: Mapping[str, Any], key: str = "") -> Model:
    """Convert `values`, at the dotted path `key`, to a pydantic model. Raises InputError for the first wrong value.

    >>> class Schedule(Options):
    ...     warmup: Share
    >>> parse_options(Schedule, {"warmup": 0.1}).warmup
    0.1
    >>> parse_options(Schedule, {"warmup": 10}, "optimizer.schedule")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: optimizer.schedule.warmup=10: must be at most 1
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise input_error(error, model, values, key) from None


def read_text(value: Any) -> Any:
    """Convert a boolean, a number or a path to a string. Return any other value unchanged."""
    if isinstance(value, (str, bool, int, float)):
        return label_text(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def read_texts(value: Any) -> Any:
    """Convert `value` to a tuple of strings. The argument may be a column name, a list of column names or null."""
    entries = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(isinstance(entry, (str, bool, int, float)) for entry in entries):
        raise RefusedValueError("must be a name or a list of names")
    return tuple(label_text(entry) for entry in entries)


def read_trust(value: Any) -> bool | tuple[str, ...]:
    """Convert the value of the config key `trust` (one or several packages, a boolean or None)."""
    if value is None or isinstance(value, bool):
        return bool(value)
    packages = [value] if isinstance(value, str) else value
    if not isinstance(packages, (list, tuple)) or not all(_is_dotted(name) for name in packages):
        raise InputError(f"trust={value}", "must be a package, a list of packages, true or null")
    return tuple(packages)


def _is_dotted(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def require_text(value: str) -> str:
    """Return the string. Raises RefusedValueError if the string is empty."""
    if not value:
        raise RefusedValueError("must be a text of one character or more")
    return value


def one_of(*names: str) -> AfterValidator:
    """Return a pydantic validator that accepts only the given names."""

    def check(value: str) -> str:
        if value not in names:
            raise RefusedValueError(*must_be_one_of(value, names))
        return value

    return AfterValidator(check)


def at_least_or_minus_one(value: int) -> int:
    """Return the integer. Raises RefusedValueError for 0 and integers below -1. The integer -1 means "no limit"."""
    if value < -1 or value == 0:
        raise RefusedValueError("must be at least 1, or -1 for no limit")
    return value


Text = Annotated[str, BeforeValidator(read_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(read_texts)]
FullText = Annotated[Text, AfterValidator(require_text)]
Count = Annotated[int, Field(ge=1)]
ZeroOrMore = Annotated[int, Field(ge=0)]
Limit = Annotated[int, AfterValidator(at_least_or_minus_one)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # seeds that NumPy and PyTorch accept
Share = Annotated[float, Field(ge=0, le=1)]
DropoutShare = Annotated[float, Field(ge=0, le=0.999)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
