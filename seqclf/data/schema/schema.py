"""Schema of a file: its fields with their options, and the columns of the label, the id, the groups and the order."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.truncation import Truncation
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject

LARGEST = 2**31 - 3  # maximum number of ids in int32, without the ids of unknown values and empty slots


class Option(NamedTuple):
    """An option of a field kind, null only if null is the default.

    `is_allowed`: function that returns True for a valid value, of values of any type, because a config or a stored
    schema holds it. `expected`: description of valid values in errors.
    """

    default: Any
    is_allowed: Callable[[Any], bool]
    expected: str


def choice_option(default: Any, *values: Any) -> Option:
    """Return an option whose value must be one of `values`.

    >>> choice_option("sum", "sum", "mean").expected
    'sum or mean'
    """
    *first, last = [str(value) for value in values]
    return Option(default, lambda value: value in values, f"{', '.join(first)} or {last}")


def count_option(default: int | None = None) -> Option:
    """Return an option whose value must be an integer from 1 to `LARGEST`, such as the size of a vocabulary."""
    expected = f"a whole number from 1 to {LARGEST}"
    return Option(default, lambda value: type(value) is int and 1 <= value <= LARGEST, expected)


def flag_option(default: bool) -> Option:
    return Option(default, lambda value: isinstance(value, bool), "true or false")


def text_option(default: str | None = None) -> Option:
    return Option(default, lambda value: isinstance(value, str) and value != "", "a text of one character or more")


def numbers_option() -> Option:
    """Return an option whose value must be a list of finite numbers, such as [-999, 1e30].

    >>> [numbers_option().is_allowed(value) for value in ([-999, 1e30], [], -999, ["-999"], [True])]
    [True, True, False, False, False]
    """
    return Option((), _holds_finite_numbers, "a list of numbers, such as [-999]")


def _holds_finite_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(
        type(entry) in (int, float) and abs(entry) <= sys.float_info.max for entry in value
    )


def positive_option(default: float | None = None) -> Option:
    return Option(default, lambda value: type(value) in (int, float) and 0 < value < float("inf"), "a number above 0")


# names of inputs and outputs of a model and of canonical columns, which no field may have
RESERVED_NAMES = {"lengths", "parents", "node_labels", "logits", "embedding", "label", "id"}


@dataclass(frozen=True)
class Field:
    """A field, which gives every token one value, read from columns of a file.

    `kind`: name of the field kind (see `encoding.encoders`). `columns`: its column, or several, such as one per
    channel. `values`: `integer`, `boolean` or `text`, the type of a category or set. `width`: channels of a number
    field in the file. `separator`: text between the elements of a list in a text cell. `options`: dict name → value
    that the config sets. `static`: True for one value per sequence.

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
    static: bool = False

    @property
    def key(self) -> str:
        return f"data.{'static' if self.static else 'fields'}.{self.name}"

    @property
    def column(self) -> str:
        """Return the names of the field's columns as one text for errors."""
        return ", ".join(self.columns)


# Types of labels. A class is stored as a text. Predictions are converted back to the type of the label column.

ARROW_TYPES = {
    "text": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
}
Label = str | int | float | bool | date
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")  # types that fit int64
LABEL_TYPES = {
    **dict.fromkeys(INTEGERS, "integer"),
    "FLOAT": "number",
    "DOUBLE": "number",
    "BOOLEAN": "boolean",
    "DATE": "date",
}


def label_type(column_type: str) -> str:
    """Return the type of the labels in a column. `column_type`: DuckDB type of the column.

    >>> label_type("BIGINT"), label_type("VARCHAR"), label_type("DECIMAL(4,2)")
    ('integer', 'text', 'text')
    """
    return LABEL_TYPES.get(column_type, "text")


def typed_labels(classes: Sequence[str], label_type: str) -> pa.Array:
    """Convert the names of classes to labels of the type `label_type`. Raises InputError for one of another type.

    >>> typed_labels(["false", "true"], "boolean").to_pylist(), typed_labels(["2", "10"], "integer").to_pylist()
    ([False, True], [2, 10])
    """
    try:
        return pc.cast(pa.array(classes, pa.string()), ARROW_TYPES[label_type])
    except pa.ArrowInvalid:
        raise InputError("schema.label_type", f"the classes are not {label_type}") from None


def label_codes(labels: pa.Array, classes: Sequence[str]) -> np.ndarray:
    """Return the (N,) int64 index of each label, a text, in `classes`, or -1 if it is no class.

    The case of booleans is ignored, because Parquet has true where a CSV file of pandas has True.

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
    """The schema of a file: its fields, and the columns with other roles, such as the label.

    `max_length`: maximum number of tokens of a sequence. `truncate`: `error`, `keep_first` or `keep_last` (see
    `Truncation`). `ignored`: columns that are not used. `label_type`: type of labels and predictions (see
    `typed_labels`).

    With `group_by`, the columns that identify a group, the file is an event table: a row is a token, and the rows of a
    group form a sequence, sorted by the columns `order_by` and then by their place in the file. `order_format`: format
    of `strptime` for texts in `order_by`, `AS_TEXT` to sort them as texts, None for numbers and ISO times.
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
    def token_fields(self) -> tuple[Field, ...]:
        """Fields that give every token a value. The other fields are static."""
        return tuple(field for field in self.fields if not field.static)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return a pair (config key, column) for every column that a file must have, except for label and id."""
        keys = [("data.group_by", column) for column in self.group_by]
        keys += [("data.order_by", column) for column in self.order_by]
        return keys + [(field.key, column) for field in self.fields for column in field.columns]

    def to_dict(self) -> JsonObject:
        """Return the schema as JSON values, with lists for tuples."""
        return json.loads(json.dumps(asdict(self)))


def require_columns(required: Iterable[tuple[str, str]], available: Iterable[str], where: str) -> None:
    """Raise InputError if a column of `required`, pairs (config key, column), is missing in the file `where`."""
    names = list(available)
    for key, column in required:
        if column not in names:
            similar = difflib.get_close_matches(column, names, 1)
            hint = f"did you mean '{similar[0]}'?" if similar else f"its columns are {', '.join(names)}"
            raise InputError(where, f"no column '{column}' ({key})", hint)


def refuse_nul(names: Iterable[str], where: str) -> None:
    """Raise InputError for a NUL character in a name, because DuckDB and Arrow would cut the name there."""
    if "\0" in "".join(names):
        raise InputError(where, "has a NUL character in the name of a column", "rename the column")


def check_names(names: Sequence[str], where: str) -> None:
    """Raise InputError if two columns have the same name, one of which DuckDB would rename in silence."""
    refuse_nul(names, where)
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            problem = f"columns '{seen[name.casefold()]}' and '{name}' have the same name (case does not count)"
            raise InputError(where, problem, "rename one of them")
        seen[name.casefold()] = name
