"""`_target_` dicts → objects, without Hydra, so that a checkpoint can rebuild itself."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from seqclf.errors import InputError


def locate(target: str) -> Any:
    """The object at a dotted path."""
    module, _, name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"_target_={target}: cannot be imported ({error})") from None


def build(config: Mapping[str, Any], kind: type | None = None, **extra: Any) -> Any:
    """Call `config["_target_"]` with the other keys and `extra`. `kind`: the class it must make.

    A config may come from a checkpoint, so only a subclass of `kind` is ever called.
    """
    arguments = {key: value for key, value in config.items() if key != "_target_"}
    made = locate(config["_target_"])
    if kind is not None and not (isinstance(made, type) and issubclass(made, kind)):
        raise InputError(f"_target_={config['_target_']}: is not a {kind.__name__}")
    try:
        return made(**arguments, **extra)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError, LookupError) as error:
        raise InputError(f"{config['_target_']}: {error}") from None
