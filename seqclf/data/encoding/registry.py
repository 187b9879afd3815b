"""Look up field kinds by name. A field kind is a module of `encoding.kinds` or a plugin of another package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from seqclf.config.hints import did_you_mean
from seqclf.data.encoding.encoder import NO_ENCODERS, FieldEncoder
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.errors import InputError
from seqclf.system.plugins import FIELD_KINDS, defined_class, installed_plugins, load_plugin, module_names

BUILT_IN = f"{__package__}.kinds"
_plugins: dict[str, type[FieldEncoder]] = {}  # cache of loaded plugins, because a lookup scans all installed packages


@cache
def built_in_kinds() -> tuple[str, ...]:
    """Return the names of the built-in field kinds."""
    return tuple(module_names(BUILT_IN))


def kind_names() -> list[str]:
    """Return the names of all field kinds, including the kinds of installed plugins."""
    return [*built_in_kinds(), *installed_plugins(FIELD_KINDS)]


@cache
def _built_in_class(kind: str) -> type[FieldEncoder]:
    return defined_class(import_module(f"{BUILT_IN}.{kind}"), FieldEncoder)


def _plugin_class(kind: str) -> type[FieldEncoder] | None:
    if kind not in _plugins:
        entry = installed_plugins(FIELD_KINDS).get(kind)
        if entry is None:
            return None
        located = load_plugin(entry)
        if not (isinstance(located, type) and issubclass(located, FieldEncoder)):
            raise InputError(kind, f"the plugin {entry.value} is no subclass of {FieldEncoder.__module__}.FieldEncoder")
        _plugins[kind] = located
    return _plugins[kind]


def encoder_class(kind: object, key: str = "kind") -> type[FieldEncoder]:
    """Return the encoder class of a field kind. Raises InputError if the kind is unknown. The error contains `key`.

    >>> encoder_class("category").__name__
    'CategoryEncoder'
    """
    # A plugin cannot replace a kind of this package. Otherwise, a bundle could give different results on different
    # machines.
    if kind in built_in_kinds():
        return _built_in_class(str(kind))
    plugin = _plugin_class(kind) if isinstance(kind, str) else None
    if plugin is None:
        names = kind_names()
        hint = did_you_mean(str(kind), names)
        known = f"it must be one of {', '.join(names)}; kinds of other packages must be installed"
        raise InputError(key, f"kind '{kind}' is unknown", f"{hint + ' ' if hint else ''}{known}")
    return plugin


def make_encoder(
    field: Field, others: Mapping[str, FieldEncoder] = NO_ENCODERS, truncation: Truncation = NO_TRUNCATION
) -> FieldEncoder:
    """Return an encoder of a field. The encoder is not fit yet. `FieldEncoder` describes the arguments."""
    return encoder_class(field.kind, f"field {field.name}")(field, others, truncation)
