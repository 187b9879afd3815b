"""The tree of settings: the keys below a class of settings, with their defaults and descriptions."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from types import UnionType
from typing import Any, Union, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from seqclf.settings.base import KeysOf, Options

REQUIRED = "???"  # default of a key that the user must set, as Hydra has it


def block_of(field: FieldInfo) -> KeysOf | None:
    """Return the block of keys below a key, or None."""
    if mark := next((part for part in field.metadata if isinstance(part, KeysOf)), None):
        return mark
    kind = field.annotation
    return KeysOf(kind) if isinstance(kind, type) and issubclass(kind, Options) else None


def nested_defaults(model: type[BaseModel], defaults: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the defaults of the keys below `model`, of which it inherits none, as nested dicts of plain values.

    Keys that a choice of a config group sets as a whole, such as `loss`, are left out. `defaults`: other ones.

    >>> from seqclf.settings.command_settings import DoctorConfig
    >>> nested_defaults(DoctorConfig)
    {'bundle': '???', 'device': 'auto', 'threads': None}
    """
    found: dict[str, Any] = {}
    for name in inspect.get_annotations(model):  # without those of its bases
        if (field := model.model_fields.get(name)) is None:
            continue
        block = block_of(field)
        if name in defaults:
            found[name] = defaults[name]
        elif block is not None:
            found[name] = nested_defaults(block.model, block.defaults)
        elif field.default_factory is not None:
            found[name] = field.get_default(call_default_factory=True)
        elif not field.is_required():
            found[name] = field.default or None if isinstance(field.default, tuple) else field.default
        elif not is_typeddict(field.annotation) and get_origin(field.annotation) not in (Union, UnionType):
            found[name] = REQUIRED
    return found


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return a dict key → description, for the keys that `model` does not inherit: the docstrings below its fields."""
    tree = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model.__name__)
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = text.value if isinstance(text, ast.Expr) else None
            found[field.target.id] = inspect.cleandoc(str(value.value)) if isinstance(value, ast.Constant) else ""
    return found
