"""Build fields and schemas from a config, from the first rows of a file, or from a stored state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import KINDS, encoder_class, make_encoder
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.kinds.set import SetEncoder
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.encoding.list_encoder import ListEncoder, infer_values
from seqclf.data.ragged import is_list
from seqclf.data.schema.cell_types import (
    MAX_CODES,
    has_decimal_commas,
    infer_elements,
    is_text,
    list_cells,
    looks_bracketed,
    looks_like_lists,
    mean_words,
)
from seqclf.data.schema.schema import ARROW_TYPES, AS_TEXT, RESERVED_NAMES, Field, Schema, require_columns
from seqclf.data.schema.truncation import SIDES
from seqclf.errors import InputError
from seqclf.settings.typed_text import quoted, shell_word
from seqclf.system.state_validation import SIZE, Where, one_of, require

if TYPE_CHECKING:
    from seqclf.settings.data_settings import DataOptions

MAX_WIDTH = 1_000_000  # maximum number of channels of a number field
MAX_NAME_BYTES = 200  # maximum number of bytes of a field name, because files are named after fields
FIELD: dict[str, Any] = {
    "name": str,
    "kind": str,
    "columns": Where([str], lambda columns: len(columns) > 0, "a list of one column or more"),
    "values": one_of("integer", "boolean", "text", "string"),
    "width": (Where(int, lambda width: 1 <= width <= MAX_WIDTH, f"a whole number from 1 to {MAX_WIDTH}"), None),
    "separator": (Where(str, lambda text: text != "", "a text of one character or more"), None),
    "options": dict,
    "static": bool,
}


def named_static_field(name: str, spec: Any, sample: pa.Table, where: str, infer: bool = True) -> Field:
    """Return the field `name`, which the config declares under data.static (see `_named_field`)."""
    return replace(_named_field(name, spec, sample, where, None, infer), static=True)


def _named_field(
    name: str, spec: Any, sample: pa.Table, where: str, data: DataOptions | None, infer: bool = True
) -> Field:
    """Return the field `name`, which the config declares under data.fields or, if `data` is None, under data.static.

    What `spec` leaves out, such as the kind, the width and, with `infer`, how missing values are read, comes from
    `sample`.
    """
    options = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    is_static = data is None
    events = data is None or bool(data.group_by)  # a cell is one value and not a list
    list_separator = None if data is None else data.list_separator
    # dict column that sorts events → format of its times, or None
    times = {} if data is None or data.order_format == AS_TEXT else dict.fromkeys(data.order_by, data.order_format)
    key = f"data.{'static' if is_static else 'fields'}.{name}"
    columns = take_columns(key, name, options)
    require_columns([(key, column) for column in columns], sample.column_names, where)
    cells = sample.column(columns[0])
    is_sequence = events or is_list(cells.type) or looks_like_lists(cells, list_separator)
    kind = options.pop("kind", None)
    if kind is None:
        is_time = columns[0] in times
        kind = _kind_for(cells, options, list_separator, events, is_time, is_static) if is_sequence else "text"
    if infer and is_sequence and kind in INFERRED and len(columns) == 1:
        found = INFERRED[kind].inferred_options(cells if events else _elements(cells, list_separator))
        options = {**({"missing": INFERRED[kind].filled} if found and is_static else found), **options}
    if kind == "time" and times.get(columns[0]) is not None and is_text(cells.type):
        options = {"format": times[columns[0]], **options}
    kind_class = _checked_kind(key, kind, columns, options, is_static=is_static)
    if events and kind_class.holds_text:
        raise InputError(key, f"a {kind} field cannot be in an event table", "name it category")
    return kind_class.complete(Field(name, kind, columns, options=options), sample, list_separator, events)


def _kind_for(
    cells: pa.ChunkedArray,
    options: Mapping[str, Any],
    separator: str | None,
    events: bool,
    is_time: bool,
    is_static: bool,
) -> str | None:
    """Whole numbers are a number if the options are those of numbers alone, such as `log`."""
    kind = "time" if is_time else _recognizing_kind(cells, separator, events)
    if kind != "category" or (infer_values(cells) if events else infer_elements(cells, separator)[0]) != "integer":
        return kind
    is_static_number = is_static and len(pc.unique(cells)) > MAX_CODES
    return "number" if is_static_number or not _accepts(CategoryEncoder, options) else kind


def _accepts(kind_class: type[FieldEncoder], options: Mapping[str, Any]) -> bool:
    known = kind_class.options
    return all(name in known and known[name].is_allowed(value) for name, value in options.items())


def declared_as(field: Field, kind: str) -> str:
    """Return the override that declares the columns of a field as another kind."""
    if field.columns == (field.name,):
        return f"data.fields.{field.name}={kind}"
    return shell_word(f"data.fields.{field.name}={{column: {quoted(field.column)}, kind: {kind}}}")


def take_columns(key: str, name: str, options: dict[str, Any]) -> tuple[str, ...]:
    """Remove `column` and `columns` from the options, and return the columns of the field, by default `name`."""
    if "column" in options and "columns" in options:
        raise InputError(key, "has both column and columns", "keep one")
    columns = options.pop("columns", None) or options.pop("column", name)
    return tuple(str(column) for column in (columns if isinstance(columns, (list, tuple)) else [columns]))


def _checked_kind(
    key: str, kind: object, columns: Sequence[str], options: Mapping[str, Any], is_static: bool
) -> type[FieldEncoder]:
    """Return the encoder class of a field. Raises InputError unless it allows the columns and options of the field."""
    kind_class = encoder_class(kind, key)
    if is_static and not kind_class.static_options:
        known = ", ".join(name for name, each in KINDS.items() if each.static_options)
        raise InputError(key, f"a {kind} field has a value of each token", f"a static field is one of {known}")
    allowed = kind_class.static_options if is_static else kind_class.options
    for name, value in options.items():
        option = kind_class.options[name] if name in allowed else None
        if option is None:
            # Hydra merges the user's config of a field with that of the dataset, which may be of another kind.
            of_others = any(name in other.options for other in KINDS.values())
            remedy = f"; where a dataset sets it for another kind, write {key}=null before the mapping" * of_others
            known = ", ".join(sorted(allowed))
            static = "static " * is_static
            raise InputError(key, f"a {static}{kind} field has no option '{name}'", f"it takes {known}{remedy}")
        try:
            is_allowed = (value is None and option.default is None) or option.is_allowed(value)
        except TypeError:  # `value` is not hashable, such as a list instead of a text
            is_allowed = False
        if not is_allowed:
            raise InputError(f"{key}.{name}={value}", f"must be {option.expected}")
    if len(columns) > 1 and (is_static or not kind_class.takes_several_columns):
        remedy = "several may be the channels of a number field of data.fields only"
        raise InputError(key, f"a {kind} field has one column", remedy)
    return kind_class


def stored_field(state: Mapping[str, Any], key: str) -> Field:
    """Return the field that `dataclasses.asdict` converted to `state`, which errors call `key`. Raises InputError."""
    state = {"static": False, **state}
    require(state, FIELD, key)
    if set(state) - set(FIELD):
        raise InputError(f"{key}.{min(set(state) - set(FIELD))}", "unknown key")
    _checked_kind(key, state["kind"], state["columns"], state["options"], state["static"])
    return Field(**{**state, "columns": tuple(state["columns"])})


def check_together(fields: tuple[Field, ...]) -> None:
    """Raise InputError if fields cannot be in one model, or refer to a missing field. Static fields come last."""
    tokens = [field for field in fields if not field.static]
    if not tokens or any(field.static for field in fields[: len(tokens)]):
        raise InputError("data.fields", "has no field with a value of each token", "name one")
    kinds = {field.name: field.kind for field in tokens}
    for field in fields:
        name, kind, column, encoder = field.name, field.kind, field.column, make_encoder(field)
        if encoder.holds_text and len(tokens) > 1:
            problem = f"the {kind} field '{name}' is split into tokens by its encoder and must be the only field"
            raise InputError("data.fields", problem, "name one text field, or only fields whose cells are lists")
        if name in RESERVED_NAMES or not name.isidentifier() or len(name.encode()) > MAX_NAME_BYTES:
            limit = f"an identifier of up to {MAX_NAME_BYTES} bytes"
            problem = f"is reserved or not {limit}, and will be an input of the model"
            renamed = f"{field.key.rpartition('.')[0]}={{my_name: {{kind: {kind}, column: {quoted(column)}}}}}"
            raise InputError(field.key, problem, f"rename it: {shell_word(renamed)}")
        encoder.check_references(kinds)


# The following functions infer fields from the first rows of a file, for the columns that the config does not name.

# Field kinds of columns of lists, in the order in which they are tried. A category accepts almost every column.
INFERRED: Mapping[str, type[ListEncoder]] = MappingProxyType(
    {"time": TimeEncoder, "set": SetEncoder, "number": NumberEncoder, "category": CategoryEncoder}
)
MIN_MEAN_WORDS = 1.5  # minimum mean number of words per cell of a free-text column, if a file has several text columns


def inferred_event_fields(
    sample: pa.Table, where: str, skip: set[str | None], options: DataOptions, named: set[str]
) -> tuple[Field, ...]:
    """Return a field for every column of an event table that is not in `skip`. `named`: names of declared fields.

    Columns in `order_by` become time fields, unless `order_format` is `AS_TEXT`.
    """
    fields: list[Field] = []
    for column in sample.column_names:
        cells = sample.column(column)
        if column in skip or cells.null_count == len(cells):
            continue
        if has_decimal_commas(cells):
            query = f"SELECT * REPLACE (replace({column}, ',', '.') AS {column}) FROM input"
            remedy = f'write a point: data.query="{query}", or name the fields'
            raise InputError(where, f"column '{column}' holds numbers with a comma, such as 1,5", remedy)
        pattern = options.order_format if column in options.order_by and is_text(cells.type) else None
        is_time = column in options.order_by and pattern != AS_TEXT
        kind = "time" if is_time else _recognizing_kind(cells, options.list_separator, events=True)
        if kind is not None:
            kind_class = INFERRED[kind]
            name = free_name(column, named | {field.name for field in fields})
            time_format = {"format": pattern} if is_time and pattern is not None else {}
            field = Field(name, kind, (column,), options={**kind_class.inferred_options(cells), **time_format})
            fields.append(kind_class.completed(field, cells, events=True))
    if not fields and not named:
        raise _unclear(sample, where, skip, events=True)
    return tuple(fields)


def inferred_fields(
    sample: pa.Table, where: str, skip: set[str | None], options: DataOptions, named: set[str]
) -> tuple[Field, ...]:
    """Return a field for every column of lists, or a text field for the column of free text if no field is declared.

    `named`: names of declared fields.
    """
    lists: list[Field] = []
    texts, separator = [], options.list_separator
    for column in sample.column_names:
        if column in skip:
            continue
        cells = sample.column(column)
        if is_list(cells.type) or (is_text(cells.type) and looks_like_lists(cells, separator)):
            cell_separator = separator if is_text(cells.type) and not looks_bracketed(cells) else None
            lists.append(_inferred_list(column, cells, cell_separator, named | {field.name for field in lists}))
        elif is_text(cells.type):
            texts.append(column)
    if lists or named:
        return tuple(lists)
    if len(texts) > 1:  # leave out columns of names and codes, whose cells are mostly one word
        texts = [column for column in texts if mean_words(sample.column(column)) > MIN_MEAN_WORDS]
    if len(texts) == 1:
        return (Field(_identifier(texts[0]), "text", (texts[0],)),)
    raise _unclear(sample, where, skip, events=False)


def _unclear(sample: pa.Table, where: str, skip: set[str | None], events: bool) -> InputError:
    others = ", ".join(name for name in sample.column_names if name not in skip) or "none"
    kinds = ", ".join(kind for kind, kind_class in KINDS.items() if not (events and kind_class.holds_text))
    problem = f"cannot tell which columns hold the tokens (columns other than label and id: {others})"
    events_remedy = "" if events else "; or, if a row is one event of a sequence, set data.group_by=COLUMN"
    return InputError(where, problem, f"name them: data.fields.COLUMN=KIND, of the kinds {kinds}{events_remedy}")


def _inferred_list(column: str, cells: pa.ChunkedArray, separator: str | None, taken: set[str]) -> Field:
    kind = _recognizing_kind(cells, separator, events=False)
    assert kind is not None, "every list is recognized as a category, if as nothing else"
    kind_class = INFERRED[kind]
    options = kind_class.inferred_options(_elements(cells, separator))
    field = Field(free_name(column, taken), kind, (column,), separator=separator, options=options)
    return kind_class.completed(field, cells, events=False)


def _elements(cells: pa.ChunkedArray, separator: str | None) -> pa.ChunkedArray:
    """Return the elements of all lists of a column, those of the inner lists if the lists are nested."""
    if is_text(cells.type):
        entries = [entry for row in list_cells(cells, separator) for entry in row]
        texts = [None if entry is None else str(entry) for entry in entries]
        return pa.chunked_array([pa.array(texts, pa.large_string())])
    while is_list(cells.type):
        cells = pc.list_flatten(cells)
    return cells


def _recognizing_kind(cells: pa.ChunkedArray, separator: str | None, events: bool) -> str | None:
    return next((kind for kind, each in INFERRED.items() if each.recognizes(cells, separator, events)), None)


def free_name(column: str, taken: set[str]) -> str:
    """Return a valid field name for a column, different from the names in `taken`."""
    name = _identifier(column)
    while name in taken:
        name += "_"
    return name


def _identifier(column: str) -> str:
    name = "".join(letter if f"f{letter}".isidentifier() else "_" for letter in column).strip("_") or "field"
    return name if name.isidentifier() and name not in RESERVED_NAMES else f"f_{name}"


SCHEMA: dict[str, Any] = {
    "fields": Where([dict], lambda fields: len(fields) > 0, "a list of one field or more"),
    "label": (str, None),
    "label_type": one_of(*ARROW_TYPES),
    "id": (str, None),
    "max_length": (SIZE, None),
    "truncate": one_of(*SIDES),
    "group_by": [str],
    "order_by": [str],
    "order_format": (str, None),
    "ignored": [str],
}


def may_be_cut(fields: Iterable[Field]) -> bool:
    """Return True if long sequences of these fields may be truncated. Trees may not be truncated."""
    return all(encoder_class(field.kind).may_be_cut for field in fields)


def stored_schema(state: Mapping[str, Any]) -> Schema:
    """Return the schema that `Schema.to_dict` converted to `state`. Raises InputError if it is not valid."""
    require(state, SCHEMA, "schema")
    # Unknown keys are rejected, because a key from a later version may change how data is read.
    if set(state) - set(SCHEMA):
        raise InputError(f"schema.{min(map(str, set(state) - set(SCHEMA)))}", "unknown key")
    fields = tuple(stored_field(entry, f"schema.fields[{index}]") for index, entry in enumerate(state["fields"]))
    if len({field.name for field in fields}) < len(fields):
        raise InputError("schema.fields", "two have the same name")
    # Encoders rely on these checks, and someone may have edited the file of a stored schema.
    check_together(fields)
    lists = {key: tuple(state[key]) for key in ("group_by", "order_by", "ignored")}
    return Schema(**{**state, "fields": fields, **lists})


def columns_of(fields: Iterable[Field]) -> set[str]:
    return {column for field in fields for column in field.columns}


def declarations(fields: Iterable[Field]) -> dict[str, dict[str, Any]]:
    """Return dict field → options that declare the field in data.fields or data.static."""

    def declared(field: Field) -> dict[str, Any]:
        columns = {"columns": list(field.columns)} if len(field.columns) > 1 else {"column": field.columns[0]}
        separator = {} if field.separator is None else {"separator": field.separator}
        as_text = {"values": "text"} if field.kind == "category" and field.values == "text" else {}
        return {"kind": field.kind, **columns, **separator, **as_text, **field.options}

    return {field.name: declared(field) for field in fields}


def declared_fields(schema: Schema) -> dict[str, Any]:
    """Return the data options that declare the fields of a schema, so that none is inferred again."""
    static = [field for field in schema.fields if field.static]
    fields = {"fields": declarations(schema.token_fields), "static": declarations(static)}
    return {**fields, "infer": False, "ignore": ()}


def build_schema(
    sample: pa.Table, where: str, options: DataOptions, skip: Sequence[str] = (), joined: Sequence[Field] = ()
) -> Schema:
    """Return the schema of a file. Columns that the options do not name become inferred fields, unless `infer` is off.

    `sample`: first rows of the file, with the types that DuckDB infers. `where`: name of the file in errors. `skip`:
    columns that become no fields. `joined`: static fields of the label table. Raises InputError for an option that does
    not fit the file.
    """
    label = options.label if options.labels is None else None  # the label table has the column otherwise
    group_by, order_by, ignore = options.group_by, options.order_by, options.ignore
    if options.order_format is not None and not order_by:
        raise InputError("data.order_format", "is the form of data.order_by", "name its column: data.order_by=COLUMN")
    if order_by and not group_by:
        raise InputError("data.order_by", "sorts the events of a group", "name the group too: data.group_by=COLUMN")
    roles = {"label": [label], "id": [options.id], "group_by": group_by, "order_by": order_by, "ignore": ignore}
    named = [(f"data.{key}", column) for key, columns in roles.items() for column in columns if column is not None]
    require_columns(named, sample.column_names, where)
    others = {field.name for field in joined}
    in_file = {name: spec for name, spec in (options.static or {}).items() if name not in others}
    of_sequences = [named_static_field(str(name), spec, sample, where, options.infer) for name, spec in in_file.items()]
    of_sequences += joined
    built = tuple(
        _named_field(str(name), spec, sample, where, options, options.infer)
        for name, spec in (options.fields or {}).items()
    )
    if not options.infer and not built:
        raise InputError("data.infer=false", "no field is named", "name them: data.fields.COLUMN=KIND")
    if options.infer and not any(KINDS[field.kind].holds_text for field in built):  # a text is the only field
        not_fields = {label, options.id, *group_by, *skip, *ignore, *columns_of([*built, *of_sequences])}
        infer = inferred_event_fields if group_by else inferred_fields
        more = infer(sample, where, not_fields, options, {field.name for field in built})
        # In the order of the columns, a field that is declared as it would be inferred changes nothing.
        built = tuple(sorted((*built, *more), key=lambda field: sample.column_names.index(field.columns[0])))
    built = (*built, *of_sequences)
    if len({entry.name for entry in built}) < len(built):
        raise InputError("data.static", "has the name of a field of data.fields", "rename one of them")
    # The label cannot be a field, because the model would get the correct answer as an input.
    for entry in built:
        if label in entry.columns:
            raise InputError(entry.key, f"column '{label}' is the label", "it cannot be a field too")
        if both := {*entry.columns} & {*ignore}:
            raise InputError(entry.key, f"data.ignore leaves out column '{min(both)}'", "name it in one of the two")
    check_together(built)
    used = {*columns_of(built), label, options.id, *group_by, *order_by}
    kept = {
        key: getattr(options, key) for key in ("id", "max_length", "truncate", "group_by", "order_by", "order_format")
    }
    schema = Schema(built, label, **kept, ignored=tuple(name for name in sample.column_names if name not in used))
    if schema.truncation.cuts and not may_be_cut(schema.fields):
        remedy = "set data.truncate=error, or data.max_length=null"
        raise InputError(f"data.truncate={options.truncate}", "a tree cannot be cut", remedy)
    return schema
