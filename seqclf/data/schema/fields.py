"""Fields: kind, columns and encoder options of one value of every token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from seqclf.data.schema.cell_types import infer_elements, is_text, looks_bracketed
from seqclf.errors import InputError
from seqclf.system.stored_state import Where, one_of, require

KINDS = ("category", "number", "time", "text", "tree")
MAX_WIDTH = 1_000_000  # channels of a number field
# The options of each kind, with their defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "category": {"min_count": 1, "max_size": None, "hash_size": None, "missing": "refuse", "separator": None},
    "number": {
        "scale": "standard",
        "log": False,
        "clip": None,
        "missing": "refuse",
        "mask": True,
        "since": None,
        "by": None,
        "separator": None,
    },
    "time": {"unit": "second", "cycles": (), "separator": None},
    "text": {"tokenizer": "word", "lowercase": True, "min_count": 2, "max_size": 50_000, "vectors": None},
    "tree": {"tags": "labels", "lowercase": False, "min_count": 1, "max_size": None},
}
# Units of time and periods of cycles, in seconds.
UNITS = {"second": 1.0, "millisecond": 1e-3, "microsecond": 1e-6, "nanosecond": 1e-9, "minute": 60.0, "hour": 3600.0}
UNITS["day"] = 86400.0
CYCLES = {"hour": 86400.0, "weekday": 7 * 86400.0}
# Names of the model's other inputs and outputs, and of columns that the reader adds.
RESERVED_NAMES = {"lengths", "parents", "node_labels", "logits", "label", "id"}


def _one_of(*values: Any) -> tuple[Callable[[Any], bool], str]:
    """A check for one of `values`, and its text for errors."""
    *first, last = [str(value) for value in values]
    return (lambda value: value in values), f"{', '.join(first)} or {last}"


COUNT = (lambda value: type(value) is int and value >= 1, "a whole number from 1")
FLAG = (lambda value: isinstance(value, bool), "true or false")
TEXT = (lambda value: isinstance(value, str) and value != "", "a text of one character or more")
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "min_count": COUNT,
    "max_size": COUNT,
    "hash_size": COUNT,
    "separator": TEXT,
    "scale": _one_of("standard", "robust", "sequence", "none"),
    "log": FLAG,
    "clip": (lambda value: type(value) in (int, float) and 0 < value < float("inf"), "a number above 0"),
    "mask": FLAG,
    "since": TEXT,
    "by": TEXT,
    "unit": _one_of(*UNITS),
    "cycles": (lambda value: isinstance(value, (list, tuple)) and set(value) <= set(CYCLES), f"a list of {[*CYCLES]}"),
    "tokenizer": _one_of("word", "bpe", "character", "byte"),
    "lowercase": FLAG,
    "vectors": TEXT,
    "tags": _one_of("labels", "tokens"),
}
MISSING = {"category": _one_of("refuse", "value"), "number": _one_of("refuse", "mean", "last", "zero")}


@dataclass(frozen=True)
class Field:
    """One value of every token.

    `kind`: one of KINDS. `columns`: one, or several number columns that are the channels of one field. `values`:
    `integer` or `string`, the type of a category's values. `width`: channels of a number field as the file has them.
    `separator`: between the elements of a list in a text cell. `options`: those that were set (see `option`).

    >>> amount = Field("amount", "number", ("amount",), width=1, options={"log": True})
    >>> amount.option("log"), amount.option("scale")
    (True, 'standard')
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

    @property
    def depth(self) -> int:
        """Nesting of the lists in a cell: 2 for a list of vectors, else 1."""
        return 2 if (self.width or 1) > 1 and len(self.columns) == 1 else 1

    @property
    def running_text(self) -> bool:
        """True if a cell is one text that the encoder splits into tokens."""
        return self.kind in ("text", "tree")

    def option(self, name: str) -> Any:
        """Return an option of the encoder, as set or by default."""
        return self.options.get(name, OPTIONS[self.kind][name])

    def describe(self) -> str:
        """Return type, width and options in words, for the console and reports."""
        detail = {"category": f"{self.values}s", "number": f"{self.width} channels"}.get(self.kind)
        extra = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return ", ".join(part for part in (detail, extra) if part)


FIELD: dict[str, Any] = {
    "name": str,
    "kind": one_of(*KINDS),
    "columns": Where([str], lambda columns: len(columns) > 0, "a list of one column or more"),
    "values": one_of("integer", "string"),
    "width": (Where(int, lambda width: 1 <= width <= MAX_WIDTH, f"a whole number from 1 to {MAX_WIDTH}"), None),
    "separator": (Where(str, lambda text: text != "", "a text of one character or more"), None),
    "options": dict,
}


def stored_field(state: Mapping[str, Any], key: str) -> Field:
    """Return the field of which `asdict` returned `state`. `key` names it in errors.

    Raises InputError if no field can have that state.
    """
    require(state, FIELD, key)
    kind, options = state["kind"], state["options"]
    unknown = (set(state) - set(FIELD)) | {f"options.{name}" for name in options if name not in OPTIONS[kind]}
    if unknown:
        raise InputError(f"{key}.{min(unknown)} is not known")
    for name, value in options.items():
        try:
            check_option(f"{key}.options.{name}", kind, name, value)
        except TypeError:  # a list, which cannot be looked up, where a text belongs
            raise InputError(f"{key}.options.{name}={value}: is of the wrong kind") from None
    if kind != "number" and len(state["columns"]) > 1:
        raise InputError(f"{key}.columns: a {kind} field has one column")
    return Field(**{**state, "columns": tuple(state["columns"])})


def check_option(key: str, kind: str, option: str, value: Any) -> None:
    """Raise InputError unless `option` of a field of this kind may have `value`. `key` names it in errors."""
    is_allowed, expected = MISSING[kind] if option == "missing" else ALLOWED[option]
    if value is None and OPTIONS[kind][option] is None:
        return
    if not is_allowed(value):
        raise InputError(f"{key}={value}: must be {expected}")


def named_field(name: str, spec: Any, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
    """Return a field as configured under data.fields.

    `spec`: a kind, or a mapping with `kind`, `column` or `columns`, and options. `sample`: the first rows of the file,
    which decide what the configuration leaves open. `events`: a row is a token, not a sequence.
    """
    options = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    kind = options.pop("kind", None)
    columns = _columns(name, options)
    key = f"data.fields.{name}"
    if kind not in KINDS:
        raise InputError(f"{key}: kind '{kind}' is unknown; it must be one of {', '.join(KINDS)}")
    unknown = set(options) - set(OPTIONS[kind])
    if unknown:
        raise InputError(
            f"{key}: a {kind} field has no option '{min(unknown)}'; it takes {', '.join(sorted(OPTIONS[kind]))}"
        )
    for option, value in options.items():
        check_option(f"{key}.{option}", kind, option, value)
    if len(columns) > 1 and kind != "number":
        raise InputError(f"{key}: a {kind} field has one column; several may be the channels of a number field only")
    if kind in ("text", "tree"):
        if events:
            raise InputError(f"{key}: a {kind} field cannot be in an event table; name it category")
        return Field(name, kind, columns, options=options)
    if events:
        return event_field(name, kind, columns, sample, options)
    cells = sample.column(columns[0])
    # Bracketed lists are separated by commas, whatever data.list_separator says of others.
    default_separator = None if looks_bracketed(cells) else list_separator
    separator = options.pop("separator", default_separator) if is_text(cells.type) else None
    values, width = infer_elements(cells, separator)
    if kind == "category":
        return Field(name, kind, columns, values if values == "integer" else "string", None, separator, options)
    if kind == "time":
        return Field(name, kind, columns, width=1, separator=separator, options=options)
    return Field(name, kind, columns, width=max(width, len(columns)), separator=separator, options=options)


def _columns(name: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Take the columns out of the options. A field without any is named like its column."""
    if "column" in options and "columns" in options:
        raise InputError(f"data.fields.{name}: has both column and columns; keep one")
    columns = options.pop("columns", None) or options.pop("column", name)
    return tuple(str(column) for column in (columns if isinstance(columns, (list, tuple)) else [columns]))


def event_field(
    name: str, kind: str, columns: tuple[str, ...], sample: pa.Table, options: Mapping[str, Any] | None = None
) -> Field:
    """Return a field of an event table, where a cell holds one value."""
    # A cell is one value, not a list to be split.
    options = {key: value for key, value in (options or {}).items() if key != "separator"}
    if kind == "category":
        return Field(name, kind, columns, event_values(sample.column(columns[0])), options=options)
    return Field(name, kind, columns, width=len(columns), options=options)


def event_values(cells: pa.ChunkedArray) -> str:
    """Return `integer` if a column of categories is stored as integers, else `string`: as text, 007 is not 7."""
    # uint64 does not fit the int64 of integer categories.
    return "integer" if pa.types.is_integer(cells.type) and cells.type != pa.uint64() else "string"
