"""Values of a `_target_` dict, checked by the types that its class declares for its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict, get_type_hints

from seqclf.config.validation_errors import input_error


def check_values(key: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InputError for the first argument that its declared type refuses. `key`: the config group.

    Types are declared by `Annotated` (all types of `seqclf.config.options` are), by `Literal` or by `bool`, alone or
    inside of another type. Other annotations are for readers, and an argument with such an annotation may be anything,
    as may an argument of a type that pydantic does not know. A list may stand for a tuple or a set, and a text for a
    path, because YAML has no other way to write them.

    >>> from seqclf.config.options import NonNegative
    >>> def focal(gamma: NonNegative, note: str): ...
    >>> check_values("loss", focal, {"gamma": 2, "note": 3})
    >>> check_values("loss", focal, {"gamma": -1})
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: loss.gamma=-1: must be at least 0
    """
    declared, adapter = _declared_arguments(function)
    # As JSON, which has the types of YAML: a strict check of Python's would refuse a list where a tuple is declared.
    checked = {name: arguments[name] for name in declared.__annotations__ if name in arguments}
    values = to_json(checked, inf_nan_mode="constants", fallback=repr)
    try:
        adapter.validate_json(values)
    except ValidationError as error:
        raise input_error(error, declared, arguments, key) from None


def checks_values(key: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator of a constructor, which then checks its named arguments by their declared types.

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
    """Return a TypedDict of the arguments that a function or class declares, and what checks one."""
    declared = cast(Any, TypedDict)("Arguments", _declared_types(function), total=False)
    declared.__pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)
    return declared, TypeAdapter(declared)


def _declared_types(function: Callable[..., Any]) -> dict[str, Any]:
    """Return argument → type of the arguments that declare their values and that pydantic can check.

    Each class of a hierarchy of dataclasses declares its fields, in the module where it stands.
    """
    hints: dict[str, Any] = {}
    for owner in (function.__init__, function) if inspect.isclass(function) else (function,):
        try:
            hints |= get_type_hints(owner, include_extras=True)
        except (NameError, TypeError):  # a name that only type checkers import, or an object without annotations
            continue
    return {name: hint for name, hint in hints.items() if _is_declared(hint) and _is_known(hint)}


def _is_declared(hint: Any) -> bool:
    if hint is bool:  # any other text or number is true or false in Python, so `residual=maybe` would be true
        return True
    return get_origin(hint) in (Annotated, Literal) or any(_is_declared(member) for member in get_args(hint))


def _is_known(hint: Any) -> bool:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:  # a tensor, for example
        return False
    return True
