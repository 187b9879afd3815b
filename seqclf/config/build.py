"""Objects from `_target_` blocks, without Hydra: a class is located, its block is checked once, and it is built.

A block holds the dotted path of a class and the arguments of its constructor. A config may name a class of any package.
In a checkpoint, somebody else may have chosen it, and it is imported only if the user trusts its package (see
`require_trusted`).
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict, get_type_hints

from seqclf.errors import InputError
from seqclf.settings.base import input_error
from seqclf.settings.typed_text import did_you_mean

Config = dict[str, Any]  # a config or a part of a config, such as a `_target_` block
Trust = bool | Iterable[str]  # names of trusted packages, or True to trust all packages
GENERATORS = "seqclf.data.builtin."  # modules of this package that generate datasets
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
REQUIRED = inspect.Parameter.empty
OF_PART = ("input_size", "hidden_size", "field_specs")  # arguments that an encoder may add to those of its part
# Exceptions that a constructor may raise for wrong arguments. A bug in the constructor may raise the same exceptions.
REFUSALS = (
    *(TypeError, ValueError, RuntimeError, LookupError, ArithmeticError, AttributeError, MemoryError),
    *(AssertionError, NotImplementedError),
)

# Locate a class, and decide if its package is trusted.


def locate(target: Any, key: str = "_target_") -> Any:
    """Import the object at a dotted path.

    Raises InputError if there is no such object. `key`: config key whose value is the dotted path, for the error text.

    >>> locate("collections.Counter")
    <class 'collections.Counter'>
    """
    module_name, _, name = str(target).rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        module = sys.modules.get(module_name)
        hint = did_you_mean(name, vars(module)) if module is not None and name else ""
        if isinstance(error, ModuleNotFoundError) and error.name == package_of(str(target)):
            hint = f"install the package {error.name}, or add the folder that holds it to PYTHONPATH"
        elif str(target).startswith("seqclf.") and not hint:  # of a checkpoint or recipe of another version
            hint = "train anew if another version of seqclf wrote this path"
        raise InputError(f"{key}={target}", f"cannot be imported ({error})", hint) from None


def locate_subclass(target: Any, kind: type, key: str = "_target_") -> type:
    """Import the class at a dotted path. Raises InputError if the class is not a subclass of `kind`."""
    located = locate(target, key)
    if not (isinstance(located, type) and issubclass(located, kind)):
        remedy = None if is_foreign(kind.__module__) else f"derive it from seqclf.extend.{kind.__name__}"
        raise InputError(f"{key}={target}", f"is not a {kind.__name__}", remedy)
    return located


def package_of(target: str) -> str:
    """Return the top-level package of a dotted path."""
    return target.partition(".")[0]


def is_foreign(target: str) -> bool:
    """Return True if a dotted path is not in the package seqclf."""
    return package_of(target) != "seqclf"


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


def require_trusted(settings: Any, key: str, usual: Iterable[str], trust: Trust) -> None:
    """Raise InputError unless each `_target_` (see `targets`) is of a `usual` or trusted package. Imports nothing."""
    allowed = (*usual, *(() if isinstance(trust, bool) else trust))
    for name, target in () if trust is True else targets(settings, key):
        if not any(target.startswith(f"{package}.") for package in allowed):
            package = package_of(target)
            problem, remedy = f"would run code of the package {package}", f"if you trust it, set trust={package}"
            raise InputError(f"{name}={target}", problem, remedy)


# Check a block by the signature and the types of its class.


@dataclass(frozen=True)
class TargetOf:
    """Mark in the type of an argument: the value is a `_target_` block, whose class is a subclass of `kind`.

    The class and its arguments are checked before any data is read. The block may lack `input_size`, `hidden_size` and
    `field_specs`, which an encoder adds when it builds the object (see `build`), and must lack those in `provided`.

    >>> def encode(input_size: int, cell: Annotated[Mapping[str, Any], TargetOf(dict)]): ...
    """

    kind: type
    provided: tuple[str, ...] = ()


class Arguments(NamedTuple):
    """Arguments of the function or class `owner`: dict name → default or `REQUIRED`. `takes_any`: it has `**kwargs`."""

    owner: str
    defaults: Mapping[str, Any]
    takes_any: bool

    @property
    def names(self) -> list[str]:
        return list(self.defaults)

    @property
    def required(self) -> list[str]:
        return [name for name, default in self.defaults.items() if default is REQUIRED]

    def accepts(self, name: str) -> bool:
        """Return True if the function takes the argument `name`."""
        return self.takes_any or name in self.defaults

    def without(self, names: Collection[str]) -> Arguments:
        """Return a copy without the arguments in `names`."""
        return self._replace(defaults={name: value for name, value in self.defaults.items() if name not in names})

    def filled(self, named: Mapping[str, Any]) -> Config:
        """Return the values `named`, and defaults for the other arguments."""
        return {**self.without([*named, *self.required]).defaults, **named}

    def require_known(self, key: str, named: Collection[str]) -> None:
        """Raise InputError for the first name of no argument. The error proposes the most similar argument."""
        for name in named:
            if not self.accepts(name):
                meant, removes = did_you_mean(name, self.names), f"~{key}.{name} removes a key of another class"
                if key in ("loss", "optimizer"):
                    removes += f", and {key}=own brings none"
                    meant = meant and f"{meant} {removes}"
                remedy = meant or f"it takes {', '.join(self.names) or 'none'}; {removes}"
                raise InputError(f"{key}.{name}", f"no such argument of {self.owner}", remedy)

    def require_complete(self, key: str, named: Collection[str]) -> None:
        """Raise InputError for the first required argument that is not `named`."""
        if missing := [name for name in self.required if name not in named]:
            raise InputError(f"{key}.{missing[0]}", "missing", f"{self.owner} needs it")


def keys_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what declares the keys of a block: the constructor, or the settings that its `config_class` reads."""
    return function.config_class.settings if hasattr(function, "config_class") else function


def arguments_of(function: Callable[..., Any]) -> Arguments:
    """Return the arguments of a function, or of a class's constructor, with its keys. A tuple becomes a list."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # some functions that are written in C have no signature
        return Arguments(function.__qualname__, {}, takes_any=True)
    # torch.nn.Module has *args and **kwargs in its signature, but rejects all arguments. It is known by the class that
    # defines the constructor, because torch.compile may have replaced `__init__` by a wrapper.
    definer = next((part for part in getattr(function, "__mro__", ()) if "__init__" in vars(part)), function)
    if f"{definer.__module__}.{definer.__qualname__}" == "torch.nn.modules.module.Module":
        parameters = []
    named = {part.name: part.default for part in parameters if part.kind in NAMED}
    if keys_of(function) is not function:
        del named["config"]
        named |= arguments_of(keys_of(function)).defaults
    defaults = {name: list(value) if isinstance(value, tuple) else value for name, value in named.items()}
    return Arguments(function.__qualname__, defaults, any(part.kind is part.VAR_KEYWORD for part in parameters))


class Checked(Config):
    """A block that was checked, and is not checked again. A changed copy, such as `{**block}`, is a plain dict."""


def check(block: Any, kind: type, provided: Collection[str], key: str, offered: Collection[str] = ()) -> Checked:
    """Return a block, with defaults for missing arguments if its class is of this package, or raise InputError.

    The class must be a subclass of `kind`, take each argument, get each required one, and accept each value (see
    `check_values`). `provided`: arguments that the block must lack, because they are added when it is built. `offered`:
    arguments that it may lack.
    """
    if isinstance(block, Checked):
        return block
    if not (isinstance(block, Mapping) and "_target_" in block):
        raise InputError(key, "names no class", f"write +{key}._target_=CLASS, the dotted path of a {kind.__name__}")
    located, named = locate_subclass(block["_target_"], kind, f"{key}._target_"), arguments_in(block)
    taken = arguments_of(located).without({*provided, *offered} - (named.keys() - provided))
    check_arguments(key, located, named, taken)
    return Checked(block if is_foreign(located.__module__) else taken.filled(block))


def arguments_in(block: Mapping[str, Any]) -> Config:
    """Return a block without its `_target_`."""
    return {name: value for name, value in block.items() if name != "_target_"}


def check_arguments(key: str, function: Callable[..., Any], named: Mapping[str, Any], taken: Arguments) -> None:
    """Raise InputError, with the config group `key`, unless a function of arguments `taken` takes those in `named`."""
    taken.require_known(key, named)
    for name, hint in _type_hints(function).items():
        value = named.get(name)
        parts = {f"{key}.{name}": value}
        if isinstance(value, (list, tuple)):
            parts = {f"{key}.{name}[{index}]": entry for index, entry in enumerate(value)}
        for place, part in parts.items():
            if isinstance(part, Mapping) or (part is value and name in taken.required):
                for mark in _marks(hint):
                    check(part, mark.kind, mark.provided, place, OF_PART)
    taken.require_complete(key, named)
    check_values(key, function, named)
    if package_of(function.__module__) in ("seqclf", "torch"):  # a class of another package may accept infinity
        for name, value in named.items():
            if any(isinstance(entry, float) and not math.isfinite(entry) for entry in _entries(value)):
                raise InputError(f"{key}.{name}={value}", "must be a finite number")


def _entries(value: Any) -> list[Any]:
    return [*value] if isinstance(value, (list, tuple)) else [*value.values()] if isinstance(value, dict) else [value]


def check_values(key: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise InputError, with the config group `key`, if an argument does not fit the type that `function` declares.

    Only types with `Annotated` (as all of `seqclf.settings.base`), `Literal` or `bool` that pydantic supports are
    checked. As YAML has no others, a list is accepted for a tuple or a set, and a string for a path.

    >>> from seqclf.settings.base import NonNegative
    >>> def focal(gamma: NonNegative, note: str): ...
    >>> check_values("loss", focal, {"gamma": 2, "note": 3})
    """
    declared, adapter = _declared_arguments(function)
    checked = {name: arguments[name] for name in declared.__annotations__ if name in arguments}
    values = to_json(checked, inf_nan_mode="constants", fallback=repr)  # strict mode accepts only JSON lists for tuples
    try:
        adapter.validate_json(values)
    except ValidationError as error:
        raise input_error(error, declared, arguments, key) from None


@cache
def _declared_arguments(function: Callable[..., Any]) -> tuple[Any, TypeAdapter[Any]]:
    hints = {name: hint for name, hint in _type_hints(function).items() if _is_declared(hint) and _is_known(hint)}
    declared = cast(Any, TypedDict)("Arguments", hints, total=False)
    declared.__pydantic_config__ = ConfigDict(strict=True, allow_inf_nan=False)
    return declared, TypeAdapter(declared)


def _type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """In a dataclass, the type of an inherited field is looked up in the module of the parent class."""
    function, hints = keys_of(function), dict[str, Any]()
    for owner in (function.__init__, function) if inspect.isclass(function) else (function,):
        try:
            hints |= get_type_hints(owner, include_extras=True)
        except (NameError, TypeError):  # a type is imported only for type checkers, or there are no annotations
            continue
    return hints


def _marks(hint: Any) -> Iterator[TargetOf]:
    if isinstance(hint, TargetOf):
        yield hint
    for member in get_args(hint):
        yield from _marks(member)


def _is_declared(hint: Any) -> bool:
    if hint is bool:  # checked, because Python treats any text as true, such as `residual=maybe`
        return True
    return get_origin(hint) in (Annotated, Literal) or any(_is_declared(member) for member in get_args(hint))


def _is_known(hint: Any) -> bool:
    try:
        TypeAdapter(hint)
    except PydanticSchemaGenerationError:  # a type that pydantic does not support, such as a tensor
        return False
    return True


# Build the object of a block, or call the function that it names.


def build(config: Mapping[str, Any], kind: type, key: str = "", /, **extra: Any) -> Any:
    """Build an object from a `_target_` block. The arguments are the other keys of the block, and `extra`.

    Raises an InputError with `key` of the `_target_` if the class is not a subclass of `kind`.

    >>> from collections import Counter
    >>> build({"_target_": "collections.Counter", "apples": 2}, dict, pears=3)
    Counter({'pears': 3, 'apples': 2})
    """
    arguments, target = arguments_in(config), config["_target_"]
    constructor, where = locate_subclass(target, kind, key or "_target_"), f"{key}={target}" if key else target
    if hasattr(constructor, "config_class"):
        arguments = {"config": _call(constructor.config_class.of, where, {"settings": arguments})}
    return _call(constructor, where, {**arguments, **extra})


def locate_generator(config: Mapping[str, Any]) -> Callable[..., Any]:
    """Import the function at `_target_` in `config`, which writes the files of a dataset into its argument `folder`.

    Raises InputError if it is not a Python function of one's own, or does not take `folder` or another key of `config`.
    """
    target = str(config.get("_target_"))
    key, own = f"data.generator._target_={target}", f"name one that writes a dataset, of your own or of {GENERATORS}*"
    if package_of(target) in sys.stdlib_module_names:
        raise InputError(key, "is of Python itself", own)
    if not is_foreign(target) and not target.startswith(GENERATORS):  # a received run could name seqclf.fit
        raise InputError(key, "is no generator", own)
    function = locate(target, "data.generator._target_")
    if not inspect.isfunction(function) or "folder" not in inspect.signature(function).parameters:
        raise InputError(key, "is not a function that writes a dataset into its argument folder")
    check_arguments("data.generator", function, arguments_in(config), arguments_of(function).without(["folder"]))
    return function


def generate(config: Mapping[str, Any], folder: Path) -> None:
    """Generate a dataset with the function at `_target_` (see `locate_generator`) and the other keys."""
    _call(locate_generator(config), config["_target_"], {**arguments_in(config), "folder": folder})


def _call(function: Callable[..., Any], where: str, arguments: dict[str, Any]) -> Any:
    try:
        return function(**arguments)
    except InputError:
        raise
    except REFUSALS as error:
        if "allocate memory" in str(error):
            raise InputError(where, "does not fit into memory", "lower its sizes, such as model.hidden_size") from None
        raise InputError(where, str(error) or type(error).__name__) from error
