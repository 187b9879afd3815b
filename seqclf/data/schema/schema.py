"""Schema of a file: the columns that are fields, label, id, and keys of an event table."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from seqclf.data.encoding.truncation import SIDES, Truncation
from seqclf.data.schema.cell_types import (
    holds_times,
    infer_elements,
    is_list,
    is_text,
    looks_bracketed,
    looks_like_lists,
    looks_timed,
    mean_words,
    names_missing,
)
from seqclf.data.schema.fields import RESERVED_NAMES, Field, check_option, event_field, named_field, stored_field
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject
from seqclf.system.stored_state import SIZE, Where, one_of, require

INFERENCE_ROWS = 1000
MIN_MEAN_WORDS = 1.5  # of running text, where a file has several columns of text
MAX_NAME_BYTES = 200  # files are named like fields
SCHEMA: dict[str, Any] = {
    "fields": Where([dict], lambda fields: len(fields) > 0, "a list of one field or more"),
    "label": (str, None),
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

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        """Return the schema of which `to_dict` returned `state`. Raises InputError if no schema can have that state."""
        require(state, SCHEMA, "schema")
        # A key of a later version may change how data is read, so it is refused and not ignored.
        if set(state) - set(SCHEMA):
            raise InputError(f"schema.{min(map(str, set(state) - set(SCHEMA)))} is not known")
        fields = tuple(stored_field(entry, f"schema.fields[{index}]") for index, entry in enumerate(state["fields"]))
        if len({field.name for field in fields}) < len(fields):
            raise InputError("schema.fields: two have the same name")
        # Encoders rely on these checks, and a stored schema may come from anywhere.
        _check_together(fields)
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
            raise InputError(f"{where}: no column '{column}' ({key}); {hint}")


def check_names(names: Sequence[str], where: str) -> None:
    """Raise InputError if two columns have the same name. DuckDB would rename one of them silently."""
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            raise InputError(
                f"{where}: columns '{seen[name.casefold()]}' and '{name}' have the same name (case does not count); "
                "rename one of them"
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
                raise InputError(f"data.fields.{entry.name}: column '{label}' is the label; it cannot be a field too")
    elif group_by:
        built = _inferred_events(sample, where, not_fields, order_by)
    else:
        built = _inferred_fields(sample, where, skip=not_fields, separator=list_separator)
    _check_together(built)
    # Cutting would leave nodes without their parents.
    if max_length is not None and truncate != "error" and any(entry.kind == "tree" for entry in built):
        raise InputError(f"data.truncate={truncate}: a tree cannot be cut; set data.truncate=error, or max_length=null")
    used = {column for entry in built for column in entry.columns} | {label, id, *group_by, *order_by}
    ignored = tuple(name for name in sample.column_names if name not in used)
    return Schema(built, label, id, max_length, truncate, tuple(group_by), tuple(order_by), ignored)


def _check_options(
    list_separator: str | None,
    max_length: int | None,
    truncate: str,
    group_by: Sequence[str],
    order_by: Sequence[str],
) -> None:
    if truncate not in SIDES:
        raise InputError(f"data.truncate={truncate}: must be error, keep_first or keep_last")
    if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
        raise InputError(f"data.max_length={max_length}: must be a whole number from 1, or null")
    if list_separator is not None:
        check_option("data.list_separator", "category", "separator", list_separator)
    if order_by and not group_by:
        raise InputError("data.order_by: sorts the events of a group; name the group too: data.group_by=COLUMN")


def _named_fields(
    fields: Any, sample: pa.Table, where: str, list_separator: str | None, events: bool
) -> tuple[Field, ...]:
    if not isinstance(fields, Mapping):
        raise InputError(f"data.fields={fields}: must say the kind of each: data.fields={{COLUMN: category}}")
    for name, spec in fields.items():
        options = spec if isinstance(spec, Mapping) else {}
        columns = options.get("columns") or options.get("column") or name
        columns = columns if isinstance(columns, (list, tuple)) else [columns]
        kind = options.get("kind") if isinstance(spec, Mapping) else spec
        if kind is not None:
            require_columns([(f"data.fields.{name}", str(column)) for column in columns], sample.column_names, where)
    return tuple(named_field(str(name), spec, sample, list_separator, events) for name, spec in fields.items())


def _check_together(fields: tuple[Field, ...]) -> None:
    """Raise InputError if fields cannot be inputs of one model, or if one refers to a field that is not there."""
    kinds = {entry.name: entry.kind for entry in fields}
    for entry in fields:
        if entry.running_text and len(fields) > 1:
            raise InputError(
                f"data.fields: the {entry.kind} field '{entry.name}' is split into tokens by its encoder and must be "
                "the only field; name one text field, or only category, number and time fields"
            )
        if entry.name in RESERVED_NAMES or not entry.name.isidentifier() or len(entry.name.encode()) > MAX_NAME_BYTES:
            raise InputError(
                f"data.fields.{entry.name}: is reserved or not an identifier of up to {MAX_NAME_BYTES} bytes, and will "
                f"be an input of the model; rename it: data.fields.my_name={{kind: {entry.kind}, column: "
                f"'{entry.column}'}}"
            )
        _check_references(entry, kinds)


def _check_references(field: Field, kinds: Mapping[str, str]) -> None:
    """Raise InputError unless `since` and `by` of a field refer to fields they can use. `kinds`: name → kind."""
    since, by = field.options.get("since"), field.options.get("by")
    if since not in (None, "tokens") and kinds.get(since) != "time":
        raise InputError(f"data.fields.{field.name}.since={since}: must be tokens or the name of a time field")
    if by is not None and kinds.get(by) != "category":
        raise InputError(f"data.fields.{field.name}.by={by}: must be the name of a category field")
    if since and field.option("missing") == "refuse":
        raise InputError(f"data.fields.{field.name}.since: needs missing=last, mean or zero")
    if by and field.options.get("scale") == "sequence":
        raise InputError(
            f"data.fields.{field.name}.by={by}: contradicts scale=sequence, which scales each sequence by itself; "
            "remove one of them"
        )
    if by and field.width != 1:
        raise InputError(f"data.fields.{field.name}.by: needs a field of one channel, this has {field.width}")


def _inferred_events(sample: pa.Table, where: str, skip: set[str | None], order_by: Sequence[str]) -> tuple[Field, ...]:
    """A field for every column but key and label.

    Columns that order the events are times. Texts and codes are categories.
    """
    fields: list[Field] = []
    for column in sample.column_names:
        cells = sample.column(column)
        if column in skip or is_list(cells.type) or pa.types.is_nested(cells.type) or cells.null_count == len(cells):
            continue
        name = _free_name(column, {field.name for field in fields})
        if column in order_by or pa.types.is_temporal(cells.type) or looks_timed(cells):
            fields.append(event_field(name, "time", (column,), sample))
            continue
        # The whole column as one list: its values are inferred like those of a list column.
        values, _ = infer_elements(pa.chunked_array([pa.array([cells.to_pylist()])]), None)
        kind = "number" if values == "number" or pa.types.is_floating(cells.type) else "category"
        has_gaps = cells.null_count or (kind == "number" and names_missing(cells))
        options = {"missing": "value" if kind == "category" else "last"} if has_gaps else {}
        fields.append(event_field(name, kind, (column,), sample, options))
    if not fields:
        others = ", ".join(name for name in sample.column_names if name not in skip) or "none"
        raise InputError(
            f"{where}: cannot tell which columns are fields (columns other than group, label and id: {others}); "
            "name them: data.fields={COLUMN: category|number|time}"
        )
    return tuple(fields)


def _inferred_fields(sample: pa.Table, where: str, skip: set[str | None], separator: str | None) -> tuple[Field, ...]:
    """A field for every column of lists, or if there is none, for the only column of running text."""
    lists: list[Field] = []
    texts = []
    for column in sample.column_names:
        if column in skip:
            continue
        cells = sample.column(column)
        if is_list(cells.type) or (is_text(cells.type) and looks_like_lists(cells, separator)):
            cell_separator = separator if is_text(cells.type) and not looks_bracketed(cells) else None
            lists.append(_inferred_list(column, cells, cell_separator, {field.name for field in lists}))
        elif is_text(cells.type):
            texts.append(column)
    if lists:
        return tuple(lists)
    if len(texts) > 1:  # names and codes are texts of one word
        texts = [column for column in texts if mean_words(sample.column(column)) > MIN_MEAN_WORDS]
    if len(texts) == 1:
        return (Field(_identifier(texts[0]), "text", (texts[0],)),)
    others = ", ".join(name for name in sample.column_names if name not in skip) or "none"
    raise InputError(
        f"{where}: cannot tell which columns hold the tokens (columns other than label and id: {others}); "
        "name them: data.fields={COLUMN: category|number|time|text|tree}, or, if a row is one event of a sequence, "
        "data.group_by=COLUMN"
    )


def _inferred_list(column: str, cells: pa.ChunkedArray, separator: str | None, taken: set[str]) -> Field:
    name = _free_name(column, taken)
    if holds_times(cells, separator):
        return Field(name, "time", (column,), separator=separator)
    values, width = infer_elements(cells, separator)
    if values in ("string", "integer"):
        return Field(name, "category", (column,), values, None, separator)
    return Field(name, "number", (column,), width=width, separator=separator)


def _free_name(column: str, taken: set[str]) -> str:
    """A valid field name for a column that no other field has."""
    name = _identifier(column)
    while name in taken:
        name += "_"
    return name


def _identifier(column: str) -> str:
    name = "".join(letter if f"f{letter}".isidentifier() else "_" for letter in column).strip("_") or "field"
    return name if name.isidentifier() and name not in RESERVED_NAMES else f"f_{name}"
