"""Schema of a file: the columns that are fields, label, id, and keys of an event table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.truncation import Truncation
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject

# Fields: kind, columns and options of one value of every token.

# Names of the model's other inputs and outputs, and of columns that the reader adds.
RESERVED_NAMES = {"lengths", "parents", "node_labels", "logits", "label", "id"}


@dataclass(frozen=True)
class Field:
    """One value of every token: what a schema stores of it. Its encoder knows everything else (see `FieldEncoder`).

    `kind`: name of the encoder's class (see `encoding.registry`). `columns`: one, or several that are the channels of
    one field. `values`: the type of a category's values: `integer`, `boolean`, `text`, or `string` of
    bundles before 0.4, which spells 1.0 and 1 apart. `width`: channels of a number field as
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

ARROW_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
}
Label = str | int | float | bool | date
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")  # those that fit in int64
LABEL_TYPES = {
    **dict.fromkeys(INTEGERS, "integer"),
    "FLOAT": "number",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "DATE": "date",
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


def label_codes(labels: pa.Array, classes: Sequence[str]) -> np.ndarray:
    """(N,) int64 positions of the labels, as texts, among the classes; -1 for a label that is not a class.

    Formats spell booleans differently: true in Parquet, True in CSV files of pandas.

    >>> label_codes(pa.array(["True", "false", "maybe"]), ["false", "true"]).tolist()
    [1, 0, -1]
    """
    names = pa.array(classes, pa.string())
    if sorted(label.lower() for label in classes) == ["false", "true"]:
        labels, names = pc.utf8_lower(labels), pc.utf8_lower(names)
    return pc.fill_null(pc.index_in(labels, value_set=names), -1).to_numpy(zero_copy_only=False).astype(np.int64)


INFERENCE_ROWS = 1000


AS_TEXT = "text"


@dataclass(frozen=True)
class Schema:
    """Fields of a token, and the columns of label, id, group and order. `ignored`: columns that nothing reads.

    `label_type`: type of the label's column, which predictions have too (see `typed_labels`).
    With `group_by` the file is an event table: a row is a token, and the rows of a group are a sequence. They are
    sorted by `order_by`, equal ones by their order in the file. `order_format`: format of `strptime` of text in these
    columns, `AS_TEXT` for the order of its letters, None for numbers and ISO times.
    """

    fields: tuple[Field, ...]
    label: str | None = None
    id: str | None = None
    max_length: int | None = None
    truncate: str = "error"
    group_by: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    order_format: str | None = None
    ignored: tuple[str, ...] = ()
    label_type: str = "text"

    @property
    def truncation(self) -> Truncation:
        return Truncation(self.max_length, self.truncate)

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
