"""Methods that a plain module lacks, from the base class of the interface that it takes part in."""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any, TypeVar, cast

Interface = TypeVar("Interface")


def completed(part: Any, interface: type[Interface]) -> Interface:
    """Return `part` itself if it is an `interface`, else a view of it with the defaults of all that it lacks.

    Users may give a plain module, whose own methods and attributes come first.

    >>> class Greeter:
    ...     name = "nobody"
    ...
    ...     def greet(self):
    ...         return f"{self.name} greets"
    >>> class Plain:
    ...     name = "a plain object"
    >>> completed(Plain(), Greeter).greet()
    'a plain object greets'
    """
    return part if isinstance(part, interface) else cast(Interface, _Completed(part, interface))


class _Completed:
    def __init__(self, part: Any, interface: type):
        self._part = part
        self._interface = interface

    def __getattr__(self, name: str) -> Any:
        try:
            own = getattr(self._part, name)
        except AttributeError:
            own = getattr(self._interface, name)
        # A wrapper, such as `torch.compile` returns, hands on the methods of the module inside. A default among them is
        # bound to the wrapper instead, which it would bypass.
        function = getattr(own, "__func__", own)
        is_default = inspect.isfunction(function) and function is getattr(self._interface, name, None)
        return MethodType(function, self._part) if is_default else own
