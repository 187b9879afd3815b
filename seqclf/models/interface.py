"""Default methods for objects that implement an interface without inheriting from its base class."""

from __future__ import annotations

import inspect
from types import MethodType
from typing import Any, TypeVar, cast

Interface = TypeVar("Interface")


def completed(part: Any, interface: type[Interface]) -> Interface:
    """Return an object that behaves like `part` and has all attributes and methods of the class `interface`.

    If `part` is an instance of `interface`, the result is `part` itself. If not, the result is a wrapper of `part`. The
    wrapper takes each attribute or method that `part` lacks from `interface`. Because of the wrapper, users can write
    classes that do not inherit from `interface`.

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
        # `part` may be the result of `torch.compile`, whose methods are bound to the original module. Bind a default
        # method to `part` instead, so that the default method calls the compiled module.
        function = getattr(own, "__func__", own)
        is_default = inspect.isfunction(function) and function is getattr(self._interface, name, None)
        return MethodType(function, self._part) if is_default else own
