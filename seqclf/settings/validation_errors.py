"""Conversion of a pydantic validation error to an InputError. The error is one line with the dotted config key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import get_type_hints, is_typeddict

from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.override_text import label_text
from seqclf.settings.similar_names import did_you_mean, must_be_one_of

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
