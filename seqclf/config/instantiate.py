"""`_target_` dicts → objects, without Hydra, so that a checkpoint can rebuild itself.

What the user's own config names may be of any package. What a checkpoint names is code that somebody else chose, and
has to be trusted before it is imported (see `require_trusted`).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from seqclf.errors import InputError

Trust = bool | Iterable[str]  # packages, or True for any


def locate(target: Any) -> Any:
    """The object at a dotted path."""
    module, _, name = str(target).rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(f"_target_={target}: cannot be imported ({error})") from None


def package_of(target: str) -> str:
    return target.partition(".")[0]


def read_trust(given: Any) -> Trust:
    """`trust` as it is set: a package, a list of them, true or null."""
    if given is None or isinstance(given, bool):
        return bool(given)
    packages = [given] if isinstance(given, str) else given
    if not isinstance(packages, (list, tuple)) or not all(_is_dotted(name) for name in packages):
        raise InputError(f"trust={given}: must be a package, a list of packages, true or null")
    return tuple(packages)


def _is_dotted(name: Any) -> bool:
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def require_trusted(key: str, target: str, usual: Iterable[str], trust: Trust) -> None:
    """Raise unless `target` is in one of the `usual` or the trusted packages. Nothing is imported."""
    allowed = (*usual, *(() if isinstance(trust, bool) else trust))
    if trust is not True and not any(target.startswith(f"{package}.") for package in allowed):
        package = package_of(target)
        raise InputError(
            f"{key}={target}: would run code of the package {package}; if you trust it, set trust={package}"
        )


def build(config: Mapping[str, Any], kind: type, **extra: Any) -> Any:
    """Call `config["_target_"]` with the other keys and `extra`. Only a subclass of `kind` is ever called."""
    arguments = {key: value for key, value in config.items() if key != "_target_"}
    made = locate(config["_target_"])
    if not (isinstance(made, type) and issubclass(made, kind)):
        raise InputError(f"_target_={config['_target_']}: is not a {kind.__name__}")
    return _called(made, config["_target_"], {**arguments, **extra})


def locate_generator(config: Mapping[str, Any]) -> Callable[..., Any]:
    """The function at `config["_target_"]`, which writes the files of a dataset into its argument `folder`.

    Raises InputError unless it says so itself: a function in Python, with that argument, of no standard module.
    """
    target = config.get("_target_")
    key = f"data.generator._target_={target}"
    if package_of(str(target)) in sys.stdlib_module_names:
        raise InputError(f"{key}: is of Python itself; name a function that writes a dataset")
    made = locate(target)
    if not inspect.isfunction(made) or "folder" not in inspect.signature(made).parameters:
        raise InputError(f"{key}: is not a function that writes a dataset into its argument folder")
    return made


def generate(config: Mapping[str, Any], folder: Path) -> None:
    """Call the function of a generator (see `locate_generator`) with the other keys of its config."""
    arguments = {name: value for name, value in config.items() if name != "_target_"}
    _called(locate_generator(config), config["_target_"], {**arguments, "folder": folder})


def _called(made: Any, target: str, arguments: dict[str, Any]) -> Any:
    try:
        return made(**arguments)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError, MemoryError) as error:
        raise InputError(f"{target}: {error}") from error
