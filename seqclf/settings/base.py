"""Base classes of all settings (pydantic), types of keys that several of them use, and the errors for wrong values.

A key is a field with its type, its default and, as a docstring below it, its description (see `descriptions`).
The types are also those of constructor arguments of networks and losses. Validation is strict: `true` is not a number,
"3" is not an integer, and unknown keys are rejected.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import get_type_hints, is_typeddict

from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.typed_text import did_you_mean, label_text, must_be_one_of

Model = TypeVar("Model", bound="Options")
NOT_SET: Any = None  # default of a key that the user must set, or whose null a validator replaces
KINDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
TAG_ERRORS = ("union_tag_invalid", "union_tag_not_found")
BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


class KeysOf:
    """Mark in the type of a key whose value is a dict: its keys are those of `model`, with other `defaults`."""

    def __init__(self, model: type[BaseModel], **defaults: Any):
        self.model = model
        self.defaults = defaults


def input_error(error: ValidationError, model: type[BaseModel], values: Any, above: str = "") -> InputError:
    """Convert pydantic's first error to an InputError with the key, the wrong value and the allowed values.

    `model`: pydantic model that rejected `values`. `above`: dotted path of `values`, "" for the whole config.
    """
    details = error.errors(include_url=False)
    # For a union type (such as a number or a mapping of numbers), pydantic reports an error for each member. The error
    # with the longest path is used, because its member fits the value best.
    start = _path(details[0], values)
    same_key = [detail for detail in details if _path(detail, values)[: len(start)] == start]
    first = max(same_key, key=lambda detail: len(_path(detail, values)))
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InputError):  # a validator raised an InputError, which needs no changes
        return cause
    path = _path(first, values)
    key = ".".join(filter(None, [above, *path]))
    if first["type"] in ("missing", "union_tag_not_found"):
        return InputError(key, "missing", "do not remove it with ~, and name it in a config file of your own")
    if first["type"] == "extra_forbidden":
        known = {name for owner in _types_at(model, path[:-1]) for name in _annotations(owner)}
        return unknown_key(key, sorted(known - {path[-1]}))  # another choice of the group may have the key
    same_value = [detail for detail in details if _path(detail, values) == path]
    problem, remedy = _requirement(same_value, cause)
    if NoneType in _types_at(model, path) and "null" not in problem:
        problem += ", or null"
    value = first["ctx"]["tag"] if first["type"] == "union_tag_invalid" else first["input"]
    return InputError(f"{key}={_shown(value)}", problem, remedy)


def unknown_key(key: str, known: list[str]) -> InputError:
    """Return an InputError for an unknown key. `known`: names of the keys in the same config group."""
    above, dot, _ = key.rpartition(".")
    hint = did_you_mean(key, [f"{above}{dot}{name}" for name in known], ignoring=above + dot)
    topic = above.partition("[")[0]  # for a key inside a list, `topic` is the key of the list
    return InputError(key, "no such key", hint or f"--help {topic}".rstrip() + " lists the keys")


def takes_text(model: type[BaseModel], key: str) -> bool:
    """Return True if the values of a key are texts, such as the name of a column, or lists of texts."""
    kinds = [kind for kind in _types_at(model, key.split(".")) if get_origin(kind) not in (dict, Mapping)]
    parts = [part for kind in kinds for part in _members((get_args(kind) or [kind])[0])]
    return str in parts and {*parts} <= {str, NoneType}


def takes_list(model: type[BaseModel], key: str) -> bool:
    """Return True if a key may have a list as its value."""
    return any(get_origin(kind) in (list, tuple) for kind in _types_at(model, key.split(".")))


def _path(detail: ErrorDetails, values: Any) -> list[str]:
    """Return the nested keys to the wrong value, without union members and positions, which pydantic adds."""
    path = []
    value = values
    for part in detail["loc"]:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
            path.append(str(part))
    if detail["type"] == "missing":
        path.append(str(detail["loc"][-1]))
    if detail["type"] in TAG_ERRORS:  # the discriminator is the key that selects a union member
        path.append(detail["ctx"]["discriminator"].strip("'"))
    return path


def _requirement(details: list[ErrorDetails], cause: Any) -> tuple[str, str | None]:
    """Return a text with the allowed values, and a remedy or None."""
    first = details[0]
    if isinstance(cause, RefusedValueError):
        return cause.problem, cause.remedy
    if isinstance(cause, ValueError):
        return str(cause), None
    if first["type"] in BOUNDS:
        words, limit = BOUNDS[first["type"]]
        return f"must be {words} {float(first['ctx'][limit]):.10g}", None
    choices = next((detail for detail in details if detail["type"] in ("literal_error", "union_tag_invalid")), None)
    if choices is not None:
        context = choices["ctx"]
        expected = str(context.get("expected") or context["expected_tags"])
        scalars = [word for detail in details for word in KINDS.get(detail["type"], "").split(" or ") if word]
        names = [*scalars, *expected.replace("'", "").replace(" or ", ", ").split(", ")]
        return must_be_one_of(context.get("tag", first["input"]), names)
    if first["type"] == "too_short":
        return "must have an entry", None
    kinds = dict.fromkeys(KINDS[detail["type"]] for detail in details if detail["type"] in KINDS)
    if "a number" in kinds:
        kinds.pop("a whole number", None)
    if not kinds:
        return first["msg"].replace("String should", "must"), None
    return f"must be {' or '.join(kinds)}", None


def _types_at(model: type[BaseModel], path: list[str]) -> list[Any]:
    """Return the types that the key at `path` may have: all members of a union."""
    types: list[Any] = [model]
    for name in path:
        types = [member for owner in types for member in _members(_annotations(owner).get(name))]
    return types


def _annotations(owner: Any) -> dict[str, Any]:
    """Return the keys of a pydantic model or a TypedDict, as a dict key → type. Return {} for any other type."""
    if is_typeddict(owner):
        return get_type_hints(owner)
    if not (isinstance(owner, type) and issubclass(owner, BaseModel)):
        return {}
    blocks = {
        name: mark.model
        for name, field in owner.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, KeysOf) and not is_typeddict(field.annotation)
    }
    return {name: field.annotation for name, field in owner.model_fields.items()} | blocks


def _members(annotation: Any) -> Iterator[Any]:
    """Yield the members of a union type, or the type itself if it is not a union. `Annotated[X, …]` becomes X."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    elif annotation is not None:
        yield annotation


def _shown(value: Any) -> str:
    return "null" if value is None else label_text(value)


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
