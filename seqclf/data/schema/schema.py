"""Schema of a file: the columns that are fields, label, id, and keys of an event table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import (
    check_together,
    inferred_event_fields,
    inferred_fields,
    named_field,
    stored_field,
)
from seqclf.data.encoding.options import text_option
from seqclf.data.encoding.registry import encoder_class
from seqclf.data.encoding.truncation import SIDES, Truncation
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import SIZE, Where, one_of, require

# Fields: kind, columns and options of one value of every token.

# Names of the model's other inputs and outputs, and of columns that the reader adds.
RESERVED_NAMES = {"lengths", "parents", "node_labels", "logits", "label", "id"}


@dataclass(frozen=True)
class Field:
    """One value of every token: what a schema stores of it. Its encoder knows everything else (see `Encoder`).

    `kind`: name of the encoder's class (see `encoding.registry`). `columns`: one, or several that are the channels of
    one field. `values`: `integer` or `string`, the type of a category's values. `width`: channels of a number field as
    the file has them. `separator`: between the elements of a list in a text cell. `options`: those that were set.

    >>> Field("amount", "number", ("amount", "fee"), width=2, options={"log": True}).column
    'amount, fee'
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    values: str = "string"
    width: int | None = None
    separator: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str:
        """The names of the columns, for messages."""
        return ", ".join(self.columns)


# Types of labels. Classes are texts everywhere; predictions have the type of the column that held the labels.

ARROW_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
Label = str | int | float | bool
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")  # those that fit in int64
LABEL_TYPES = {
    **dict.fromkeys(INTEGERS, "integer"),
    "FLOAT": "number",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
}


def label_type(column_type: str) -> str:
    """Return the type of the labels in a column of a DuckDB type.

    >>> label_type("BIGINT"), label_type("VARCHAR"), label_type("DECIMAL(4,2)")
    ('integer', 'text', 'text')
    """
    return LABEL_TYPES.get(column_type, "text")


def typed_labels(classes: Sequence[str], label_type: str) -> pa.Array:
    """(C,) labels of the classes in their type. Raises InputError for a class that is no such value.

    >>> typed_labels(["false", "true"], "boolean").to_pylist(), typed_labels(["2", "10"], "integer").to_pylist()
    ([False, True], [2, 10])
    """
    try:
        return pc.cast(pa.array(classes, pa.string()), ARROW_TYPES[label_type])
    except pa.ArrowInvalid:
        raise InputError("schema.label_type", f"the classes are not {label_type}") from None


INFERENCE_ROWS = 1000
SCHEMA: dict[str, Any] = {
    "fields": Where([dict], lambda fields: len(fields) > 0, "a list of one field or more"),
    "label": (str, None),
    "label_type": one_of(*ARROW_TYPES),
    "id": (str, None),
    "max_length": (SIZE, None),
    "truncate": one_of(*SIDES),
    "group_by": [str],
    "order_by": [str],
    "ignored": [str],
}


@dataclass(frozen=True)
class Schema:
    """Fields of a token, and the columns of label, id, group and order. `ignored`: columns that nothing reads.

    `label_type`: type of the label's column, which predictions have too (see `label_types`).
    With `group_by` the file is an event table: a row is a token, and the rows of a group are a sequence. They are
    sorted by `order_by`, equal ones by their order in the file.
    """

    fields: tuple[Field, ...]
    label: str | None = None
    id: str | None = None
    max_length: int | None = None
    truncate: str = "error"
    group_by: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    label_type: str = "text"

    @property
    def truncation(self) -> Truncation:
        return Truncation(self.max_length, self.truncate)

    @property
    def may_be_cut(self) -> bool:
        """True if `truncate` can shorten sequences of these fields. Nodes of a tree would lose their parents."""
        return all(encoder_class(field.kind).may_be_cut for field in self.fields)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """(config key, column) of every column that a file must have, label and id not included."""
        keys = [("data.group_by", column) for column in self.group_by]
        keys += [("data.order_by", column) for column in self.order_by]
        return keys + [(f"data.fields.{field.name}", column) for field in self.fields for column in field.columns]

    def to_dict(self) -> JsonObject:
        """Return the schema as plain JSON values."""
        # JSON turns tuples into lists, so the result equals what is read back from a file.
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        """Return the schema of which `to_dict` returned `state`. Raises InputError if no schema can have that state."""
        state = {"label_type": "text", **state}  # bundles of seqclf 0.1 do not have it
        require(state, SCHEMA, "schema")
        # A key of a later version may change how data is read, so it is refused and not ignored.
        if set(state) - set(SCHEMA):
            raise InputError(f"schema.{min(map(str, set(state) - set(SCHEMA)))}", "unknown key")
        fields = tuple(stored_field(entry, f"schema.fields[{index}]") for index, entry in enumerate(state["fields"]))
        if len({field.name for field in fields}) < len(fields):
            raise InputError("schema.fields", "two have the same name")
        # Encoders rely on these checks, and a stored schema may come from anywhere.
        check_together(fields)
        lists = {key: tuple(state[key]) for key in ("group_by", "order_by", "ignored")}
        return cls(**{**state, "fields": fields, **lists})


def require_columns(required: Iterable[tuple[str, str]], available: Iterable[str], where: str) -> None:
    """Raise InputError unless every column is available. The message names the most similar one.

    `required`: (config key, column). `where`: the file, for the message.
    """
    names = list(available)
    for key, column in required:
        if column not in names:
            similar = difflib.get_close_matches(column, names, 1)
            hint = f"did you mean '{similar[0]}'?" if similar else f"its columns are {', '.join(names)}"
            raise InputError(where, f"no column '{column}' ({key})", hint)


def check_names(names: Sequence[str], where: str) -> None:
    """Raise InputError if two columns have the same name. DuckDB would rename one of them silently."""
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            raise InputError(
                where,
                f"columns '{seen[name.casefold()]}' and '{name}' have the same name (case does not count)",
                "rename one of them",
            )
        seen[name.casefold()] = name


def build_schema(
    sample: pa.Table,
    where: str,
    *,
    label: str | None,
    id: str | None,
    fields: Mapping[str, Any] | None,
    list_separator: str | None,
    max_length: int | None,
    truncate: str,
    group_by: Sequence[str] = (),
    order_by: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Schema:
    """Return the schema of a file.

    `sample`: its first rows, with the types that DuckDB gives them. `where`: the file, for errors. `label`: None if the
    labels are in another file. `skip`: columns that are not fields. All others are keys of the data config. Raises
    InputError.
    """
    _check_options(list_separator, max_length, truncate, group_by, order_by)
    named = [(key, column) for key, column in (("data.label", label), ("data.id", id)) if column is not None]
    named += [("data.group_by", column) for column in group_by] + [("data.order_by", column) for column in order_by]
    require_columns(named, sample.column_names, where)
    not_fields = {label, id, *group_by, *skip}
    if fields:
        built = _named_fields(fields, sample, where, list_separator, bool(group_by))
        # The model would read the answer.
        for entry in built:
            if label in entry.columns:
                raise InputError(
                    f"data.fields.{entry.name}", f"column '{label}' is the label", "it cannot be a field too"
                )
    elif group_by:
        built = inferred_event_fields(sample, where, not_fields, order_by, list_separator)
    else:
        built = inferred_fields(sample, where, skip=not_fields, separator=list_separator)
    check_together(built)
    used = {column for entry in built for column in entry.columns} | {label, id, *group_by, *order_by}
    ignored = tuple(name for name in sample.column_names if name not in used)
    schema = Schema(built, label, id, max_length, truncate, tuple(group_by), tuple(order_by), ignored)
    if schema.truncation.cuts and not schema.may_be_cut:
        raise InputError(
            f"data.truncate={truncate}", "a tree cannot be cut", "set data.truncate=error, or data.max_length=null"
        )
    return schema


def _check_options(
    list_separator: str | None,
    max_length: int | None,
    truncate: str,
    group_by: Sequence[str],
    order_by: Sequence[str],
) -> None:
    if truncate not in SIDES:
        raise InputError(f"data.truncate={truncate}", "must be error, keep_first or keep_last")
    if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
        raise InputError(f"data.max_length={max_length}", "must be a whole number from 1, or null")
    separator = text_option()
    if list_separator is not None and not separator.is_allowed(list_separator):
        raise InputError(f"data.list_separator={list_separator}", f"must be {separator.expected}")
    if order_by and not group_by:
        raise InputError("data.order_by", "sorts the events of a group", "name the group too: data.group_by=COLUMN")


def _named_fields(
    fields: Any, sample: pa.Table, where: str, list_separator: str | None, events: bool
) -> tuple[Field, ...]:
    if not isinstance(fields, Mapping):
        raise InputError(f"data.fields={fields}", "must say the kind of each: 'data.fields={COLUMN: category}'")
    for name, spec in fields.items():
        options = spec if isinstance(spec, Mapping) else {}
        columns = options.get("columns") or options.get("column") or name
        columns = columns if isinstance(columns, (list, tuple)) else [columns]
        kind = options.get("kind") if isinstance(spec, Mapping) else spec
        if kind is not None:
            require_columns([(f"data.fields.{name}", str(column)) for column in columns], sample.column_names, where)
    return tuple(named_field(str(name), spec, sample, list_separator, events) for name, spec in fields.items())
