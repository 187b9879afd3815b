"""`_target_` dicts → objects, without Hydra, so that a checkpoint can rebuild itself.

A user's config may name classes of any package. A checkpoint from elsewhere names code that somebody else chose, which
has to be trusted before it is imported (see `require_trusted`).
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqclf.config.key_aliases import known_by_habit
from seqclf.config.suggestions import did_you_mean
from seqclf.errors import InputError

# Arguments of constructors, compared with the keys of a `_target_` dict before anything is built.

Config = dict[str, Any]  # a group of a config as plain values: settings, or a `_target_` with its arguments

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
    if _constructor_owner(function) == "torch.nn.modules.module.Module":
        # A signature for any arguments, but it takes none.
        return Arguments(function.__qualname__, [], [], takes_any=False)
    named = [parameter for parameter in parameters if parameter.kind in NAMED]
    return Arguments(
        owner=function.__qualname__,
        names=[parameter.name for parameter in named],
        required=[parameter.name for parameter in named if parameter.default is parameter.empty],
        takes_any=any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters),
    )


def defaults_of(function: Callable[..., Any]) -> Config:
    """Return the arguments of a function or class with the values that they have by default, as YAML would hold them.

    >>> defaults_of(did_you_mean)
    {'ignoring': ''}
    """
    parameters = inspect.signature(function).parameters.values()
    given = {part.name: part.default for part in parameters if part.kind in NAMED and part.default is not part.empty}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _constructor_owner(function: Callable[..., Any]) -> str:
    """Return the dotted path of the class whose `__init__` a class inherits, an empty text for a function.

    Not read from `__init__` itself, which torch.compile may have replaced by a wrapper.
    """
    owners = (owner for owner in getattr(function, "__mro__", ()) if "__init__" in vars(owner))
    return next((f"{owner.__module__}.{owner.__qualname__}" for owner in owners), "")


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
    written: Collection[str] | None,
    ignored: Collection[str] = ("_target_",),
) -> dict[str, Any]:
    """Return `settings` without the keys that are neither taken nor written by the user.

    A `_target_` that is set over a config of this package leaves the keys of the class that the config was made for.
    A class that takes any argument gets only those that it names, or that the user wrote. `key`: of the settings in the
    config. `written`: dotted keys, see `config.user_keys`, None for all. `ignored`: names that are no arguments, which
    stay.

    >>> taken = Arguments("Net", names=["kernel"], required=["kernel"], takes_any=False)
    >>> drop_unused("model", {"kernel": 5, "cell": "lstm", "layers": 2}, taken, {"model.kernel", "model.layers"})
    {'kernel': 5, 'layers': 2}
    """
    return {
        name: value
        for name, value in settings.items()
        if name in ignored or name in taken.names or written is None or f"{key}.{name}" in written
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


Trust = bool | Iterable[str]  # packages, or True for any

# What a constructor raises for arguments it cannot use. A bug in it may raise the same, but then the line names it.
REFUSALS = (
    *(TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError, MemoryError),
    *(AssertionError, NotImplementedError),
)


def locate(target: Any, key: str = "_target_") -> Any:
    """Return the object at a dotted path. Raises InputError, which names `key`, where there is none.

    >>> locate("collections.Counter")
    <class 'collections.Counter'>
    >>> locate("collections.Conter")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: _target_=collections.Conter: cannot be imported (module 'collections' has no attribute \
'Conter'); did you mean 'Counter'?
    """
    module_name, _, name = str(target).rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        module = sys.modules.get(module_name)
        hint = did_you_mean(name, vars(module)) if module is not None and name else ""
        if isinstance(error, ModuleNotFoundError) and error.name == package_of(str(target)):
            hint = f"install the package {error.name}, or add the folder that holds it to PYTHONPATH"
        raise InputError(f"{key}={target}", f"cannot be imported ({error})", hint) from None


def package_of(target: str) -> str:
    """Return the top-level package of a dotted path."""
    return target.partition(".")[0]


def targets(settings: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield each `_target_` in a part of a config with its key, those nested in it too.

    >>> list(targets({"_target_": "a.Net", "encoder": {"_target_": "b.Conv"}}, "model"))
    [('model._target_', 'a.Net'), ('model.encoder._target_', 'b.Conv')]
    """
    waiting = [(key, settings)]  # not recursive: a checkpoint may nest its settings to any depth
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            if "_target_" in value:
                yield f"{name}._target_", str(value["_target_"])
            waiting += [(f"{name}.{part}", below) for part, below in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}[{index}]", below) for index, below in enumerate(value)]


def is_foreign(target: str) -> bool:
    """Return True for the class of another package."""
    return package_of(target) != "seqclf"


def read_trust(value: Any) -> bool | tuple[str, ...]:
    """Return the key `trust`, a package, a list of them, true or null, as a tuple of packages or a boolean."""
    if value is None or isinstance(value, bool):
        return bool(value)
    packages = [value] if isinstance(value, str) else value
    if not isinstance(packages, (list, tuple)) or not all(_is_dotted(name) for name in packages):
        raise InputError(f"trust={value}", "must be a package, a list of packages, true or null")
    return tuple(packages)


def _is_dotted(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def require_trusted(key: str, target: str, usual: Iterable[str], trust: Trust) -> None:
    """Raise unless `target` is in one of the `usual` or the trusted packages. Nothing is imported."""
    allowed = (*usual, *(() if isinstance(trust, bool) else trust))
    if trust is not True and not any(target.startswith(f"{package}.") for package in allowed):
        package = package_of(target)
        raise InputError(
            f"{key}={target}", f"would run code of the package {package}", f"if you trust it, set trust={package}"
        )


def build(config: Mapping[str, Any], kind: type, key: str = "", /, **extra: Any) -> Any:
    """Call `config["_target_"]` with the other keys and `extra`. Only a subclass of `kind` is ever called.

    `key`: of the target, for errors.

    >>> from collections import Counter
    >>> build({"_target_": "collections.Counter", "apples": 2}, dict, pears=3)
    Counter({'pears': 3, 'apples': 2})
    """
    arguments = {key: value for key, value in config.items() if key != "_target_"}
    constructor = locate_subclass(config["_target_"], kind)
    target = config["_target_"]
    return _call(constructor, f"{key}={target}" if key else target, {**arguments, **extra})


def locate_subclass(target: Any, kind: type, key: str = "_target_") -> type:
    """Return the class at a dotted path. Raises InputError, which names `key`, unless it is a subclass of `kind`."""
    located = locate(target, key)
    if not (isinstance(located, type) and issubclass(located, kind)):
        raise InputError(f"{key}={target}", f"is not a {kind.__name__}")
    return located


def locate_generator(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function at `config["_target_"]`, which writes the files of a dataset into its argument `folder`.

    Raises InputError unless it is a Python function outside of the standard library that takes this argument and the
    other keys.
    """
    target = config.get("_target_")
    key = f"data.generator._target_={target}"
    if package_of(str(target)) in sys.stdlib_module_names:
        raise InputError(key, "is of Python itself", "name a function that writes a dataset")
    function = locate(target, "data.generator._target_")
    if not inspect.isfunction(function) or "folder" not in inspect.signature(function).parameters:
        raise InputError(key, "is not a function that writes a dataset into its argument folder")
    check_arguments("data.generator", function, config.keys() - {"_target_"}, {"folder"})
    return function


def generate(config: Mapping[str, Any], folder: Path) -> None:
    """Call the function of a generator (see `locate_generator`) with the other keys of its config."""
    arguments = {name: value for name, value in config.items() if name != "_target_"}
    if not is_foreign(config["_target_"]):
        require_finite("data.generator", arguments)
    _call(locate_generator(config), config["_target_"], {**arguments, "folder": folder})


def _call(function: Callable[..., Any], where: str, arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except InputError:
        raise
    except REFUSALS as error:
        if "allocate memory" in str(error):
            raise InputError(where, "does not fit into memory", "lower its sizes, such as model.hidden_size") from None
        raise InputError(where, str(error) or type(error).__name__) from error
