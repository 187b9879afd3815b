"""Inference of the fields that a config does not name, from the first rows of a file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from seqclf.data.encoding.list_encoder import ListEncoder
from seqclf.data.encoding.registry import built_in_kinds, encoder_class
from seqclf.data.schema.cell_types import (
    is_list,
    is_text,
    looks_bracketed,
    looks_like_lists,
    mean_words,
)
from seqclf.data.schema.fields import RESERVED_NAMES, Field
from seqclf.errors import InputError

MIN_MEAN_WORDS = 1.5  # of running text, where a file has several columns of text


def inferred_event_fields(
    sample: pa.Table, where: str, skip: set[str | None], order_by: Sequence[str], separator: str | None
) -> tuple[Field, ...]:
    """A field for every column but key and label. Columns that order the events are times."""
    fields: list[Field] = []
    for column in sample.column_names:
        cells = sample.column(column)
        if column in skip or cells.null_count == len(cells):
            continue
        kind = "time" if column in order_by else _recognizing_kind(cells, separator, events=True)
        if kind is not None:
            kind_class = encoder_class(kind)
            assert issubclass(kind_class, ListEncoder)
            name = _free_name(column, {field.name for field in fields})
            field = Field(name, kind, (column,), options=kind_class.inferred_options(cells))
            fields.append(kind_class.complete_event(field, cells, separator))
    if not fields:
        others = ", ".join(name for name in sample.column_names if name not in skip) or "none"
        raise InputError(
            where,
            f"cannot tell which columns are fields (columns other than group, label and id: {others})",
            f"name them: 'data.fields={{COLUMN: KIND}}', of the kinds {_kinds(events=True)}",
        )
    return tuple(fields)


def inferred_fields(sample: pa.Table, where: str, skip: set[str | None], separator: str | None) -> tuple[Field, ...]:
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
        where,
        f"cannot tell which columns hold the tokens (columns other than label and id: {others})",
        f"name them: 'data.fields={{COLUMN: KIND}}', of the kinds {_kinds(events=False)}; or, if a row is one event "
        "of a sequence, set data.group_by=COLUMN",
    )


def _inferred_list(column: str, cells: pa.ChunkedArray, separator: str | None, taken: set[str]) -> Field:
    kind = _recognizing_kind(cells, separator, events=False)
    assert kind is not None, "every list is recognized as a category, if as nothing else"
    kind_class = encoder_class(kind)
    assert issubclass(kind_class, ListEncoder)
    field = Field(_free_name(column, taken), kind, (column,), separator=separator)
    return kind_class.complete_list(field, cells)


def _recognizing_kind(cells: pa.ChunkedArray, separator: str | None, events: bool) -> str | None:
    """Return the first kind that a column looks like, or None."""
    classes = {kind: encoder_class(kind) for kind in built_in_kinds()}
    ranked = {
        kind: kind_class
        for kind, kind_class in classes.items()
        if issubclass(kind_class, ListEncoder) and kind_class.inference_rank is not None
    }
    for kind in sorted(ranked, key=lambda kind: ranked[kind].inference_rank or 0):
        if ranked[kind].recognizes(cells, separator, events):
            return kind
    return None


def _kinds(events: bool) -> str:
    """The kinds of fields that a table can have, for errors."""
    names = [kind for kind in built_in_kinds() if not events or encoder_class(kind).in_event_tables]
    return ", ".join(names)


def _free_name(column: str, taken: set[str]) -> str:
    """A valid field name for a column that no other field has."""
    name = _identifier(column)
    while name in taken:
        name += "_"
    return name


def _identifier(column: str) -> str:
    name = "".join(letter if f"f{letter}".isidentifier() else "_" for letter in column).strip("_") or "field"
    return name if name.isidentifier() and name not in RESERVED_NAMES else f"f_{name}"
