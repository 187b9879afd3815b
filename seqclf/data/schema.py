"""What the columns of a file mean: which are fields of a step, which is the label, which the id."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from seqclf.data.cells import is_list, is_text, look_into, looks_bracketed, looks_like_lists, mean_words
from seqclf.errors import InputError

KINDS = ("category", "number", "text")
OPTIONS = {
    "category": {"min_count", "max_size", "separator"},
    "number": {"separator", "scale"},
    "text": {"tokenizer", "lowercase", "min_count", "max_size"},
}
COUNT = (lambda value: type(value) is int and value >= 1, "a whole number from 1")
ALLOWED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "min_count": COUNT,
    "max_size": COUNT,
    "separator": (lambda value: isinstance(value, str) and value != "", "a text of one character or more"),
    "scale": (lambda value: value in ("standard", "none"), "standard or none"),
    "tokenizer": (lambda value: value in ("word", "bpe", "character"), "word, bpe or character"),
    "lowercase": (lambda value: isinstance(value, bool), "true or false"),
}
RESERVED_NAMES = {"lengths", "parents", "logits", "label", "id"}
INFERENCE_ROWS = 1000


@dataclass(frozen=True)
class Field:
    """One value of every step.

    `values` says what a category is made of (`integer` or `string`); `width` is the channels of a number field, null
    for other kinds; `options` are the encoder's.
    """

    name: str
    kind: str
    column: str
    values: str = "string"
    width: int | None = None
    separator: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        """How deep the lists of a cell are nested: 2 for a list of vectors."""
        return 2 if (self.width or 1) > 1 else 1

    def describe(self) -> str:
        detail = {"category": f"list of {self.values}s", "number": f"{self.width} channels"}.get(self.kind)
        extra = ", ".join(f"{key}={value}" for key, value in self.options.items())
        return ", ".join(part for part in (detail, extra) if part)


@dataclass(frozen=True)
class Schema:
    """Fields of a step and the columns beside them. `ignored` are columns that nothing reads."""

    fields: tuple[Field, ...]
    label: str | None = None
    id: str | None = None
    max_length: int | None = None
    truncate: str = "error"
    ignored: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        fields = tuple(Field(**entry) for entry in state["fields"])
        return cls(**{**state, "fields": fields, "ignored": tuple(state["ignored"])})


def require_columns(wanted: Iterable[tuple[str, str]], available: Iterable[str], where: str) -> None:
    """Raise unless every `(key, column)` is there; the message names the nearest column."""
    names = list(available)
    for key, column in wanted:
        if column not in names:
            near = difflib.get_close_matches(column, names, 1)
            hint = f"did you mean '{near[0]}'?" if near else f"its columns are {', '.join(names)}"
            raise InputError(f"{where}: no column '{column}' ({key}); {hint}")


def check_names(names: Sequence[str], where: str) -> None:
    """Raise if two columns have the same name; DuckDB would rename one of them in silence."""
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
) -> Schema:
    """The schema of a file, from its first rows (`sample`, as DuckDB types) and what the user said of it."""
    if truncate not in ("error", "keep_first", "keep_last"):
        raise InputError(f"data.truncate={truncate}: must be error, keep_first or keep_last")
    if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
        raise InputError(f"data.max_length={max_length}: must be a whole number from 1, or null")
    if list_separator is not None:
        _check_option("data.list_separator", "separator", list_separator)
    named = [(key, column) for key, column in (("data.label", label), ("data.id", id)) if column is not None]
    require_columns(named, sample.column_names, where)
    if fields:
        if not isinstance(fields, Mapping):
            raise InputError(f"data.fields={fields}: must say the kind of each: data.fields={{COLUMN: category}}")
        built = tuple(_named_field(name, spec, sample, where, list_separator) for name, spec in fields.items())
        # A column named for steps may be the label only by mistake: the model would read the answer.
        for entry in built:
            if entry.column == label:
                raise InputError(f"data.fields.{entry.name}: column '{label}' is the label; it cannot be a field too")
    else:
        built = _inferred_fields(sample, where, skip={label, id}, separator=list_separator)
    _check_together(built)
    used = {entry.column for entry in built} | {label, id}
    ignored = tuple(name for name in sample.column_names if name not in used)
    return Schema(built, label, id, max_length, truncate, ignored)


def _check_together(fields: tuple[Field, ...]) -> None:
    texts = [entry.name for entry in fields if entry.kind == "text"]
    if texts and len(fields) > 1:
        raise InputError(
            f"data.fields: the text field '{texts[0]}' makes steps of its own and cannot stand beside other fields; "
            "name one text field, or only category and number fields"
        )
    for entry in fields:
        if entry.name in RESERVED_NAMES or not entry.name.isidentifier():
            raise InputError(
                f"data.fields.{entry.name}: is reserved or no identifier, and will be an input of the model; "
                f"rename it: data.fields.my_name={{kind: {entry.kind}, column: '{entry.column}'}}"
            )


def _check_option(key: str, option: str, value: Any) -> None:
    allowed, text = ALLOWED[option]
    if not allowed(value):
        raise InputError(f"{key}={value}: must be {text}")


def _named_field(name: str, spec: Any, sample: pa.Table, where: str, list_separator: str | None) -> Field:
    spec = dict(spec) if isinstance(spec, Mapping) else {"kind": spec}
    kind, column = spec.pop("kind", None), spec.pop("column", name)
    if kind not in KINDS:
        raise InputError(f"data.fields.{name}: kind '{kind}' is unknown; it must be one of {', '.join(KINDS)}")
    unknown = set(spec) - OPTIONS[kind]
    if unknown:
        raise InputError(
            f"data.fields.{name}: a {kind} field has no option '{min(unknown)}'; "
            f"it takes {', '.join(sorted(OPTIONS[kind]))}"
        )
    for option, value in spec.items():
        _check_option(f"data.fields.{name}.{option}", option, value)
    require_columns([(f"data.fields.{name}", column)], sample.column_names, where)
    if kind == "text":
        return Field(name, kind, column, options=spec)
    cells = sample.column(column)
    usual = None if looks_bracketed(cells) else list_separator
    separator = spec.pop("separator", usual) if is_text(cells.type) else None
    values, width = look_into(cells, separator)
    if kind == "category":
        return Field(name, kind, column, values if values == "integer" else "string", None, separator, spec)
    return Field(name, kind, column, width=width, separator=separator, options=spec)


def _inferred_fields(sample: pa.Table, where: str, skip: set[str | None], separator: str | None) -> tuple[Field, ...]:
    """Every column of lists; where there is none, the one column of running text."""
    lists: list[Field] = []
    texts = []
    for column in sample.column_names:
        if column in skip:
            continue
        cells = sample.column(column)
        if is_list(cells.type) or (is_text(cells.type) and looks_like_lists(cells, separator)):
            used = separator if is_text(cells.type) and not looks_bracketed(cells) else None
            lists.append(_inferred_list(column, cells, used, {field.name for field in lists}))
        elif is_text(cells.type):
            texts.append(column)
    if lists:
        return tuple(lists)
    if len(texts) > 1:
        texts = [column for column in texts if mean_words(sample.column(column)) > 1.5]
    if len(texts) == 1:
        return (Field(_identifier(texts[0]), "text", texts[0]),)
    others = ", ".join(name for name in sample.column_names if name not in skip) or "none"
    raise InputError(
        f"{where}: cannot tell which columns hold the steps (columns beside label and id: {others}); "
        "name them: data.fields={COLUMN: category|number|text}"
    )


def _inferred_list(column: str, cells: pa.ChunkedArray, separator: str | None, taken: set[str]) -> Field:
    values, width = look_into(cells, separator)
    name = _identifier(column)
    while name in taken:
        name += "_"
    if values in ("string", "integer"):
        return Field(name, "category", column, values, None, separator)
    return Field(name, "number", column, width=width, separator=separator)


def _identifier(column: str) -> str:
    name = "".join(letter if f"f{letter}".isidentifier() else "_" for letter in column).strip("_") or "field"
    return name if name.isidentifier() and name not in RESERVED_NAMES else f"f_{name}"
