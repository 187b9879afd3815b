"""`_target_` dicts → objects, without Hydra, so that a checkpoint can rebuild itself.

A user's config may name classes of any package. A checkpoint from elsewhere names code that somebody else chose, which
has to be trusted before it is imported (see `require_trusted`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seqclf.config.arguments import check_arguments, require_finite
from seqclf.config.suggestions import did_you_mean
from seqclf.errors import InputError

Config = dict[str, Any]  # a group of a config as plain values: settings, or a `_target_` with its arguments
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
        raise InputError(where, str(error) or type(error).__name__) from error
