"""Type checks of constructor arguments that come from a config (a `_target_` dict)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict, get_type_hints

from seqclf.config.targets import keys_of
from seqclf.config.validation_errors import input_error


@dataclass(frozen=True)
class TargetOf:
    """Mark in the type of an argument: the value is a `_target_` dict, whose class is a subclass of `kind`.

    The class and its arguments are checked before any data is read. The dict may lack `input_size`, `hidden_size` and
    `field_specs`, which an encoder adds when it builds the object (see `build`).

    >>> def encode(input_size: int, cell: Annotated[Mapping[str, Any], TargetOf(dict)]): ...
    """

    kind: type


def target_kinds(function: Callable[..., Any]) -> dict[str, type]:
    """Return a dict argument name → class, for the arguments whose type has a mark `TargetOf`.

    >>> def encode(input_size: int, cell: Annotated[Mapping[str, Any], TargetOf(dict)]): ...
    >>> target_kinds(encode)
    {'cell': <class 'dict'>}
    """
    return {
        name: mark.kind
        for name, hint in _type_hints(function).items()
        for mark in getattr(hint, "__metadata__", ())
        if isinstance(mark, TargetOf)
    }


def check_values(key: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InputError if an argument does not fit the type that `function` declares for the argument.

    Only types with `Annotated` (as all of `seqclf.config.options`), `Literal` or `bool` that pydantic supports are
    checked. As YAML has no others, a list is accepted for a tuple or a set, and a string for a path. `key`: config
    group, for the error text. A `_target_` dict (see `TargetOf`) is not checked: another function checks it by other
    keys.

    >>> from seqclf.config.options import NonNegative
    >>> def focal(gamma: NonNegative, note: str): ...
    >>> check_values("loss", focal, {"gamma": 2, "note": 3})
    >>> check_values("loss", focal, {"gamma": -1})
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: loss.gamma=-1: must be at least 0
    """
    declared, adapter = _declared_arguments(function)
    # The values are converted to JSON, because pydantic's strict mode rejects a Python list for a tuple, but accepts a
    # JSON list.
    checked = {name: arguments[name] for name in declared.__annotations__ if name in arguments}
    values = to_json(checked, inf_nan_mode="constants", fallback=repr)
    try:
        adapter.validate_json(values)
    except ValidationError as error:
        raise input_error(error, declared, arguments, key) from None


def checks_values(key: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that checks the types of a constructor's keyword arguments (see `check_values`).

    >>> from seqclf.config.options import Count
    >>> class Layer:
    ...     @checks_values("model")
    ...     def __init__(self, *, size: Count = 3): ...
    >>> Layer(size=0)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model.size=0: must be at least 1
    """

    def decorate(constructor: Callable[..., None]) -> Callable[..., None]:
        @wraps(constructor)
        def checking(self: Any, *arguments: Any, **named: Any) -> None:
            check_values(key, constructor, named)
            constructor(self, *arguments, **named)

        return checking

    return decorate


@cache
def _declared_arguments(function: Callable[..., Any]) -> tuple[Any, TypeAdapter[Any]]:
    declared = cast(Any, TypedDict)("Arguments", _declared_types(function), total=False)
    declared.__pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)
    return declared, TypeAdapter(declared)


def _declared_types(function: Callable[..., Any]) -> dict[str, Any]:
    hints = {name: hint for name, hint in _type_hints(function).items() if name not in target_kinds(function)}
    return {name: hint for name, hint in hints.items() if _is_declared(hint) and _is_known(hint)}


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """In a dataclass, the type of an inherited field is looked up in the module of the parent class."""
    function, hints = keys_of(function), dict[str, Any]()
    for owner in (function.__init__, function) if inspect.isclass(function) else (function,):
        try:
            hints |= get_type_hints(owner, include_extras=True)
        except (NameError, TypeError):  # a type is imported only for type checkers, or there are no annotations
            continue
    return hints


def _is_declared(hint: Any) -> bool:
    if hint is bool:  # checked, because Python treats any text as true, such as `residual=maybe`
        return True
    return get_origin(hint) in (Annotated, Literal) or any(_is_declared(member) for member in get_args(hint))


def _is_known(hint: Any) -> bool:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:  # a type that pydantic does not support, such as a tensor
        return False
    return True
