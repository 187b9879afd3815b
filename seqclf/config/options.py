"""Typed options: the base of every config model, and the types that several of them share.

A model lies next to the code that reads it (`data/options.py`, `batching/options.py`, …). No field has a default value:
conf/ is the home of their defaults. Arguments of networks and losses are declared on their constructors, by the types
below too. Validation is strict: `true` is no number, "3" is no whole number, and a key that no model knows is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from seqclf.config.override_text import label_text
from seqclf.config.suggestions import must_be_one_of
from seqclf.config.validation_errors import input_error
from seqclf.errors import RefusedValueError

Model = TypeVar("Model", bound="Options")


class Options(BaseModel):
    """A group of config keys, checked once and immutable afterwards."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CommandOptions(Options):
    """The config of a command.

    An experiment may define top-level variables for its interpolations (`path: ???`). They are kept as extra
    attributes, so that `config.yaml` of a run still holds them. `command` refuses other unknown keys.
    """

    model_config = ConfigDict(extra="allow")


def parse_options(model: type[Model], values: Mapping[str, Any], key: str = "") -> Model:
    """Return `values` as a checked model.

    `key`: where the values are in the config, for the error line. Raises InputError for the first value that is wrong.

    >>> class Schedule(Options):
    ...     warmup: Share
    >>> parse_options(Schedule, {"warmup": 0.1}).warmup
    0.1
    >>> parse_options(Schedule, {"warmup": 10}, "optimizer.schedule")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: optimizer.schedule.warmup=10: must be at most 1; write 10 % as 0.1
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise input_error(error, model, values, key) from None


def read_text(value: Any) -> Any:
    """Turn the scalars that YAML does not read as text, and paths, into text."""
    if isinstance(value, (str, bool, int, float)):
        return label_text(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def read_texts(value: Any) -> Any:
    """Turn one column name, a list of them or null into a tuple of texts."""
    entries = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    if not all(isinstance(entry, (str, bool, int, float)) for entry in entries):
        raise RefusedValueError("must be a name or a list of names")
    return tuple(label_text(entry) for entry in entries)


def require_text(value: str) -> str:
    """Refuse the empty text."""
    if not value:
        raise RefusedValueError("must be a text of one character or more")
    return value


def one_of(*names: str) -> AfterValidator:
    """Return a validator that accepts these names, for choices that another module lists."""

    def check(value: str) -> str:
        if value not in names:
            raise RefusedValueError(*must_be_one_of(value, names))
        return value

    return AfterValidator(check)


def at_least_or_minus_one(value: int) -> int:
    """Refuse 0 and everything below -1, which stands for "no limit"."""
    if value < -1 or value == 0:
        raise RefusedValueError("must be at least 1, or -1 for no limit")
    return value


Text = Annotated[str, BeforeValidator(read_text)]
Texts = Annotated[tuple[str, ...], BeforeValidator(read_texts)]
FullText = Annotated[Text, AfterValidator(require_text)]
Count = Annotated[int, Field(ge=1)]
ZeroOrMore = Annotated[int, Field(ge=0)]
Limit = Annotated[int, AfterValidator(at_least_or_minus_one)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]  # the range of numpy's and PyTorch's seeds
Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
