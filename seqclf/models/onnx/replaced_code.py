"""Replacement of functions of PyTorch while a thread exports a network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType
from typing import Any

_lock = threading.RLock()
_exporting = threading.local()


def original_of(function: Any) -> Callable[..., Any]:
    """Return a copy of `function` that keeps its present code."""
    return FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)


def is_replacing() -> bool:
    """Return True in a thread inside of a `with replaced_code(…)` block."""
    return getattr(_exporting, "is_active", False)


@contextmanager
def replaced_code(replacements: Mapping[Any, Any]) -> Iterator[None]:
    """Replace the code of functions inside the `with` block.

    `replacements`: dict function → function of the same arguments, whose code is taken. The code runs in the global
    names of the replaced function, so it must import what it needs. Other threads run the code too, and must get the
    original function (see `is_replacing`). The code is replaced and not the name, because third-party code may have
    imported the function under any name.
    """
    with _lock:
        codes = {function: function.__code__ for function in replacements}
        was_active = is_replacing()
        _exporting.is_active = True
        for function, replacement in replacements.items():
            function.__code__ = replacement.__code__
        try:
            yield
        finally:
            for function, code in codes.items():
                function.__code__ = code
            _exporting.is_active = was_active
