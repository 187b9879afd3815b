"""Look up field kinds by name. A field kind is a module of `encoding.kinds`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.kinds.set import SetEncoder
from seqclf.data.encoding.kinds.text import TextEncoder
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.encoding.kinds.tree import TreeEncoder
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.errors import InputError
from seqclf.settings.similar_names import did_you_mean

KINDS: Mapping[str, type[FieldEncoder]] = MappingProxyType(
    {
        "category": CategoryEncoder,
        "number": NumberEncoder,
        "set": SetEncoder,
        "text": TextEncoder,
        "time": TimeEncoder,
        "tree": TreeEncoder,
    }
)


def encoder_class(kind: object, key: str = "kind") -> type[FieldEncoder]:
    """Return the encoder class of a field kind. Raises InputError if the kind is unknown. The error contains `key`.

    >>> encoder_class("category").__name__
    'CategoryEncoder'
    """
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(str(kind), list(KINDS))
        known = f"it must be one of {', '.join(KINDS)}"
        raise InputError(key, f"kind '{kind}' is unknown", f"{hint + ' ' if hint else ''}{known}")
    return KINDS[kind]


def make_encoder(field: Field, truncation: Truncation = NO_TRUNCATION) -> FieldEncoder:
    """Return an encoder of a field, which is not fit yet (see `FieldEncoder`)."""
    return encoder_class(field.kind, f"field {field.name}")(field, truncation)
