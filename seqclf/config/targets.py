"""Build objects from `_target_` dicts, without Hydra, so that a checkpoint can be loaded without it.

A `_target_` dict holds the dotted path of a class and the arguments of its constructor. A config may name a class of
any package. In a checkpoint, somebody else may have chosen it, and it is imported only if the user trusts its package
(see `require_trusted`).
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqclf.config.hints import did_you_mean
from seqclf.errors import InputError

# Check that the constructor takes the arguments in a `_target_` dict, before any object is built.

Config = dict[str, Any]  # a config or a part of a config, such as a `_target_` dict

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Arguments(NamedTuple):
    """Arguments of the function or class `owner`: all names, and those without a default.

    `takes_any`: True if the function has `**kwargs`.

    >>> arguments_of(did_you_mean)
    Arguments(owner='did_you_mean', names=['word', 'known', 'ignoring'], required=['word', 'known'], takes_any=False)
    """

    owner: str
    names: list[str]
    required: list[str]
    takes_any: bool

    def accepts(self, name: str) -> bool:
        """Return True if the function takes the argument `name`."""
        return self.takes_any or name in self.names

    def without(self, names: Collection[str]) -> Arguments:
        """Return a copy without the arguments in `names`."""
        return self._replace(
            names=[name for name in self.names if name not in names],
            required=[name for name in self.required if name not in names],
        )


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Return the arguments of a function, or of a class's constructor, with its keys (see `keys_of`)."""
    keys = keys_of(function)
    if keys is not function:
        taken, given = arguments_of(keys), [name for name in inspect.signature(function).parameters if name != "config"]
        return taken._replace(owner=function.__qualname__, names=[*given, *taken.names], required=given)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return Arguments(function.__qualname__, [], [], takes_any=True)
    if _constructor_owner(function) == "torch.nn.modules.module.Module":
        # torch.nn.Module has *args and **kwargs in its signature, but rejects all arguments.
        return Arguments(function.__qualname__, [], [], takes_any=False)
    named = [parameter for parameter in parameters if parameter.kind in NAMED]
    return Arguments(
        owner=function.__qualname__,
        names=[parameter.name for parameter in named],
        required=[parameter.name for parameter in named if parameter.default is parameter.empty],
        takes_any=any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters),
    )


def keys_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what declares the keys of a `_target_` dict: the constructor, or the settings of its `config_class`.

    The constructor of a class with a `config_class` takes `config`, which `config_class.of(settings)` builds.
    """
    return function.config_class.settings if hasattr(function, "config_class") else function


def defaults_of(function: Callable[..., Any]) -> Config:
    """Return a dict argument name → default of a function or class. A tuple becomes a list.

    >>> defaults_of(did_you_mean)
    {'ignoring': ''}
    """
    parameters = inspect.signature(keys_of(function)).parameters.values()
    given = {part.name: part.default for part in parameters if part.kind in NAMED and part.default is not part.empty}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _constructor_owner(function: Callable[..., Any]) -> str:
    """Return the class that defines the constructor, or "": torch.compile may have replaced `__init__` by a wrapper."""
    owners = (owner for owner in getattr(function, "__mro__", ()) if "__init__" in vars(owner))
    return next((f"{owner.__module__}.{owner.__qualname__}" for owner in owners), "")


def check_arguments(
    key: str, function: Callable[..., Any], arguments: Collection[str], provided: Collection[str]
) -> None:
    """Raise InputError, with the config group `key`, if `function` does not take an argument, or lacks one.

    `arguments`: names in the `_target_` dict. `provided`: further names that are not in the dict.
    """
    taken = arguments_of(function).without(provided)
    require_known(key, arguments, taken)
    require_complete(key, arguments, taken)


def require_known(key: str, arguments: Collection[str], taken: Arguments) -> None:
    """Raise InputError for the first argument that is not in `taken`. The error proposes the most similar argument."""
    unknown = [name for name in arguments if not taken.accepts(name)]
    if unknown:
        takes = f"it takes {', '.join(taken.names)}" if taken.names else "it takes none"
        removes = f"~{key}.{unknown[0]} removes a key of another class"
        if key in ("loss", "optimizer"):
            removes += f", and {key}=own brings none"
        meant = did_you_mean(unknown[0], taken.names)
        hint = f"{meant} {removes}" if meant and key in ("loss", "optimizer") else meant or f"{takes}; {removes}"
        raise InputError(f"{key}.{unknown[0]}", f"no such argument of {taken.owner}", hint)


def require_complete(key: str, arguments: Collection[str], taken: Arguments) -> None:
    """Raise InputError for the first required argument that is missing."""
    missing = [name for name in taken.required if name not in arguments]
    if missing:
        raise InputError(f"{key}.{missing[0]}", "missing", f"{taken.owner} needs it")


def require_finite(key: str, arguments: Mapping[str, Any]) -> None:
    """Raise InputError if an argument in the config at `key` is, or contains in a list or mapping, an infinity or NaN.

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


GENERATORS = "seqclf.data.builtin."  # modules of this package that generate datasets
Trust = bool | Iterable[str]  # names of trusted packages, or True to trust all packages

# Exceptions that a constructor may raise for wrong arguments. A bug in the constructor may raise the same exceptions.
REFUSALS = (
    *(TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError, MemoryError),
    *(AssertionError, NotImplementedError),
)


def locate(target: Any, key: str = "_target_") -> Any:
    """Import the object at a dotted path.

    Raises InputError if there is no such object. `key`: config key whose value is the dotted path, for the error text.

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
    """Yield each `_target_` in a part of a config, including nested dicts, as a pair (dotted key, value).

    >>> list(targets({"_target_": "a.Net", "encoder": {"_target_": "b.Conv"}}, "model"))
    [('model._target_', 'a.Net'), ('model.encoder._target_', 'b.Conv')]
    """
    waiting = [(key, settings)]  # not recursive, because the settings of a checkpoint may be nested very deeply
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            if "_target_" in value:
                yield f"{name}._target_", str(value["_target_"])
            waiting += [(f"{name}.{part}", below) for part, below in value.items()]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}[{index}]", below) for index, below in enumerate(value)]


def is_foreign(target: str) -> bool:
    """Return True if a dotted path is not in the package seqclf."""
    return package_of(target) != "seqclf"


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


def require_trusted(key: str, target: str, usual: Iterable[str], trust: Trust) -> None:
    """Raise InputError unless `target` is in a package that is `usual` or that the user trusts. Imports nothing."""
    allowed = (*usual, *(() if isinstance(trust, bool) else trust))
    if trust is not True and not any(target.startswith(f"{package}.") for package in allowed):
        package = package_of(target)
        raise InputError(
            f"{key}={target}", f"would run code of the package {package}", f"if you trust it, set trust={package}"
        )


def build(config: Mapping[str, Any], kind: type, key: str = "", /, **extra: Any) -> Any:
    """Build an object from a `_target_` dict. The arguments are the other keys of the dict, and `extra`.

    Raises an InputError with `key` of the `_target_` if the class is not a subclass of `kind`.

    >>> from collections import Counter
    >>> build({"_target_": "collections.Counter", "apples": 2}, dict, pears=3)
    Counter({'pears': 3, 'apples': 2})
    """
    arguments = {key: value for key, value in config.items() if key != "_target_"}
    target = config["_target_"]
    constructor, where = locate_subclass(target, kind, key or "_target_"), f"{key}={target}" if key else target
    if hasattr(constructor, "config_class"):
        arguments = {"config": _call(constructor.config_class.of, where, {"settings": arguments})}
    return _call(constructor, where, {**arguments, **extra})


def locate_subclass(target: Any, kind: type, key: str = "_target_") -> type:
    """Import the class at a dotted path. Raises InputError if the class is not a subclass of `kind`."""
    located = locate(target, key)
    if not (isinstance(located, type) and issubclass(located, kind)):
        is_ours = not is_foreign(kind.__module__)
        remedy = f"derive it from seqclf.extend.{kind.__name__}" if is_ours else None
        raise InputError(f"{key}={target}", f"is not a {kind.__name__}", remedy)
    return located


def locate_part(part: Any, kind: type, key: str) -> type:
    """Import the class of a part (`_target_` dict), such as the recurrent cell of an encoder.

    Raises an InputError with the config `key` if it names no class, or one that is not a subclass of `kind`.
    """
    if not (isinstance(part, Mapping) and "_target_" in part):
        raise InputError(key, "names no class", f"write +{key}._target_=CLASS, the dotted path of a {kind.__name__}")
    return locate_subclass(part["_target_"], kind, f"{key}._target_")


def locate_generator(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the function at `_target_` in `config`, which writes the files of a dataset into its argument `folder`.

    Raises InputError if it is not a Python function, is part of the standard library, or does not take `folder` or
    another key of `config`.
    """
    target = config.get("_target_")
    key = f"data.generator._target_={target}"
    if package_of(str(target)) in sys.stdlib_module_names:
        raise InputError(key, "is of Python itself", "name a function that writes a dataset")
    if not is_foreign(str(target)) and not str(target).startswith(GENERATORS):  # a received run could name seqclf.fit
        raise InputError(key, "is no generator", f"name a function of your own, or of {GENERATORS}*")
    function = locate(target, "data.generator._target_")
    if not inspect.isfunction(function) or "folder" not in inspect.signature(function).parameters:
        raise InputError(key, "is not a function that writes a dataset into its argument folder")
    check_arguments("data.generator", function, config.keys() - {"_target_"}, {"folder"})
    return function


def generate(config: Mapping[str, Any], folder: Path) -> None:
    """Generate a dataset with the function at `_target_` (see `locate_generator`) and the other keys."""
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
