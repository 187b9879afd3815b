"""Fields as a config or a stored schema declares them, checked by the class of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from seqclf.config.override_text import quoted, shell_word
from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.registry import built_in_kinds, encoder_class, make_encoder
from seqclf.data.schema.fields import RESERVED_NAMES, Field
from seqclf.errors import InputError
from seqclf.system.state_validation import Where, one_of, require

MAX_WIDTH = 1_000_000  # channels of a number field
MAX_NAME_BYTES = 200  # files are named like fields
FIELD: dict[str, Any] = {
    "name": str,
    "kind": str,
    "columns": Where([str], lambda columns: len(columns) > 0, "a list of one column or more"),
    "values": one_of("integer", "string"),
    "width": (Where(int, lambda width: 1 <= width <= MAX_WIDTH, f"a whole number from 1 to {MAX_WIDTH}"), None),
    "separator": (Where(str, lambda text: text != "", "a text of one character or more"), None),
    "options": dict,
}


def named_field(name: str, spec: Any, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
    """Return a field as configured under data.fields.

    `spec`: a kind, or a mapping with `kind`, `column` or `columns`, and options. `sample`: the first rows of the file,
    which decide what the configuration leaves open. `events`: a row is a token, not a sequence.
    """
    options = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    kind = options.pop("kind", None)
    columns = _columns(name, options)
    key = f"data.fields.{name}"
    kind_class = encoder_class(kind, key)
    for option, value in options.items():
        check_option(key, kind, option, value)
    if len(columns) > 1 and not kind_class.takes_several_columns:
        raise InputError(key, f"a {kind} field has one column", "several may be the channels of a number field only")
    if events and not kind_class.in_event_tables:
        raise InputError(key, f"a {kind} field cannot be in an event table", "name it category")
    return kind_class.complete(Field(name, kind, columns, options=options), sample, list_separator, events)


def _columns(name: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Take the columns out of the options. A field without any is named like its column."""
    if "column" in options and "columns" in options:
        raise InputError(f"data.fields.{name}", "has both column and columns", "keep one")
    columns = options.pop("columns", None) or options.pop("column", name)
    return tuple(str(column) for column in (columns if isinstance(columns, (list, tuple)) else [columns]))


def check_option(key: str, kind: str, name: str, value: Any) -> None:
    """Raise InputError unless a field of this kind has the option `name` and it may be `value`.

    `key`: of the field, for errors.
    """
    options = encoder_class(kind, key).options
    if name not in options:
        of_others = any(name in encoder_class(other).options for other in built_in_kinds())
        # Hydra merges a mapping into the one of the dataset, with the options of its kind.
        remedy = f"; where a dataset sets it for another kind, write {key}=null before the mapping" if of_others else ""
        raise InputError(
            key, f"a {kind} field has no option '{name}'", f"it takes {', '.join(sorted(options))}{remedy}"
        )
    option = options[name]
    if value is None and option.default is None:
        return
    try:
        is_allowed = option.is_allowed(value)
    except TypeError:  # a list, which cannot be looked up, where a text belongs
        is_allowed = False
    if not is_allowed:
        raise InputError(f"{key}.{name}={value}", f"must be {option.expected}")


def stored_field(state: Mapping[str, Any], key: str) -> Field:
    """Return the field of which `asdict` returned `state`. `key` names it in errors.

    Raises InputError if no field can have that state.
    """
    require(state, FIELD, key)
    kind, options = state["kind"], state["options"]
    if set(state) - set(FIELD):
        raise InputError(f"{key}.{min(set(state) - set(FIELD))}", "unknown key")
    kind_class = encoder_class(kind, f"{key}.kind")
    for name, value in options.items():
        if name not in kind_class.options:
            raise InputError(f"{key}.options.{name}", "unknown key")
        check_option(f"{key}.options", kind, name, value)
    if len(state["columns"]) > 1 and not kind_class.takes_several_columns:
        raise InputError(f"{key}.columns", f"a {kind} field has one column")
    return Field(**{**state, "columns": tuple(state["columns"])})


def check_together(fields: tuple[Field, ...]) -> None:
    """Raise InputError if fields cannot be inputs of one model, or if one refers to a field that is not there."""
    encoders: dict[str, Encoder] = {}
    for field in fields:
        encoders[field.name] = make_encoder(field, encoders)
    for name, encoder in encoders.items():
        kind = encoder.field.kind
        if encoder.stands_alone and len(fields) > 1:
            raise InputError(
                "data.fields",
                f"the {kind} field '{name}' is split into tokens by its encoder and must be the only field",
                "name one text field, or only fields whose cells are lists",
            )
        if name in RESERVED_NAMES or not name.isidentifier() or len(name.encode()) > MAX_NAME_BYTES:
            raise InputError(
                f"data.fields.{name}",
                f"is reserved or not an identifier of up to {MAX_NAME_BYTES} bytes, and will be an input of the model",
                f"rename it: {_renamed(encoder)}",
            )
        encoder.check_references()


def _renamed(encoder: Encoder) -> str:
    """Return the argument that gives the only field another name."""
    return shell_word(
        f"data.fields={{my_name: {{kind: {encoder.field.kind}, column: {quoted(encoder.field.column)}}}}}"
    )
