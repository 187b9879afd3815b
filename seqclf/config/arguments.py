"""Arguments of constructors, compared with the keys of a `_target_` dict before anything is built."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from seqclf.config.habits import known_by_habit
from seqclf.config.suggestions import did_you_mean
from seqclf.errors import InputError

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments(NamedTuple):
    """Arguments of a function or class. `takes_any`: it also takes names that its signature does not list.

    >>> arguments_of(did_you_mean)
    Arguments(owner='did_you_mean', names=['word', 'known', 'ignoring'], required=['word', 'known'], takes_any=False)
    """

    owner: str
    names: list[str]
    required: list[str]
    takes_any: bool

    def accepts(self, name: str) -> bool:
        """Return True if an argument can be passed by this name."""
        return self.takes_any or name in self.names

    def without(self, names: Collection[str]) -> Arguments:
        """Return the arguments that are left for a config once the caller passes those called `names`."""
        return self._replace(
            names=[name for name in self.names if name not in names],
            required=[name for name in self.required if name not in names],
        )


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Return the arguments of a function or class by its signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return Arguments(function.__qualname__, [], [], takes_any=True)
    if getattr(getattr(function, "__init__", None), "__qualname__", "") == "Module.__init__":
        # Inherited from torch.nn.Module, which has a signature for any arguments but takes none.
        return Arguments(function.__qualname__, [], [], takes_any=False)
    named = [parameter for parameter in parameters if parameter.kind in NAMED]
    return Arguments(
        owner=function.__qualname__,
        names=[parameter.name for parameter in named],
        required=[parameter.name for parameter in named if parameter.default is parameter.empty],
        takes_any=any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters),
    )


def check_arguments(
    key: str, function: Callable[..., Any], arguments: Collection[str], provided: Collection[str]
) -> None:
    """Raise InputError unless `function` takes the arguments of a `_target_` dict, and no other one is missing.

    `key`: the config group, for the error line. `provided`: names that the caller adds.
    """
    taken = arguments_of(function).without(provided)
    require_known(key, arguments, taken)
    require_complete(key, arguments, taken)


def require_known(key: str, arguments: Collection[str], taken: Arguments) -> None:
    """Raise InputError, which names the nearest argument, for the first name that is not taken."""
    unknown = [name for name in arguments if not taken.accepts(name)]
    if unknown:
        takes = f"it takes {', '.join(taken.names)}" if taken.names else "it takes none"
        habit = known_by_habit(unknown[0], taken.names)
        hint = did_you_mean(habit or unknown[0], taken.names) or takes
        raise InputError(f"{key}.{unknown[0]}", f"no such argument of {taken.owner}", hint)


def require_complete(key: str, arguments: Collection[str], taken: Arguments) -> None:
    """Raise InputError for the first required argument that is missing."""
    missing = [name for name in taken.required if name not in arguments]
    if missing:
        raise InputError(f"{key}.{missing[0]}", "missing", f"{taken.owner} needs it")


def drop_unused(
    key: str,
    settings: Mapping[str, Any],
    taken: Arguments,
    written: Collection[str],
    ignored: Collection[str] = ("_target_",),
) -> dict[str, Any]:
    """Return `settings` without the keys that are neither taken nor written by the user.

    A `_target_` that is set over a config of this package leaves the keys of the class that the config was made for.
    A class that takes any argument gets only those that it names, or that the user wrote. `key`: of the settings in the
    config. `written`: dotted keys, see `written_keys`. `ignored`: names that are no arguments, which stay.

    >>> taken = Arguments("Net", names=["kernel"], required=["kernel"], takes_any=False)
    >>> drop_unused("model", {"kernel": 5, "cell": "lstm", "layers": 2}, taken, {"model.kernel", "model.layers"})
    {'kernel': 5, 'layers': 2}
    """
    return {
        name: value
        for name, value in settings.items()
        if name in ignored or name in taken.names or f"{key}.{name}" in written
    }


def require_finite(key: str, arguments: Mapping[str, Any]) -> None:
    """Raise InputError for a number that is infinite or nan, alone or in a list or mapping. `key`: of the arguments.

    >>> require_finite("optimizer", {"eps": float("inf")})
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: optimizer.eps=inf: must be a finite number
    """
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            require_finite(f"{key}.{name}", value)
        for entry in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(entry, float) and not math.isfinite(entry):
                raise InputError(f"{key}.{name}={value}", "must be a finite number")
