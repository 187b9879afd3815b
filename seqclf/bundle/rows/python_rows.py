"""Conversion of Python rows (sequences in memory) to canonical Arrow columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from seqclf.bundle.rows.event_order import EventOrder
from seqclf.data.encoding.encoder import FieldEncoder, UnfitValueError
from seqclf.data.reading.queries import passes_through
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError


def require_unchanged_fields(query: str | None, schema: Schema, where: str, remedy: str) -> None:
    """Raise InputError if the SQL text `query` (the key `data.query`) changes a column of a field.

    The query is not applied to Python rows. If a query changed a field, it would be unclear if a row holds the value
    before or after the query.
    """
    if query is not None and not passes_through(query, [column for _, column in schema.columns]):
        problem = "its data.query changes the fields, and is applied to tables and files only"
        raise InputError(where, problem, remedy)


def to_columns(
    sequences: list[Any],
    encoders: Mapping[str, FieldEncoder],
    field_of_column: Mapping[str, str] = MappingProxyType({}),
    ignored: Collection[str] = (),
    order: EventOrder | None = None,
) -> tuple[pa.RecordBatch, list[str | None]]:
    """Return canonical columns with one row per sequence, and a list with the error of each sequence or None.

    If there is one field, a sequence is a text or a list of tokens. If there are several fields, a sequence is a dict
    field name → list. If a tree is stored in several lists (words and parents), a sequence is a dict column name →
    list. A sequence with a wrong value gets null values in the columns, and an error.

    `field_of_column`: dict column name in the training file → field name. A sequence may use these column names as keys
    in place of field names. `ignored`: keys of a sequence to ignore, such as the name of the label column. `order`:
    sorts the events of a sequence, as those of a file are sorted; None keeps them as they are.
    """
    known = f"the fields of the model are {', '.join(map(_name_with_columns, encoders.values()))}"
    errors: list[str | None] = [None] * len(sequences)
    columns: dict[str, list[Any]] = {name: [None] * len(sequences) for name in encoders}
    for row, sequence in enumerate(sequences):
        try:
            sequence = as_row(sequence, encoders)
            if order is not None:
                sequence = order.sort(sequence)
        except ValueError as error:
            errors[row] = str(error)
            continue
        if not sequence.keys() <= encoders.keys():
            sequence = _by_field(_join_parts(sequence, encoders), encoders, field_of_column, ignored)
            if unknown := sequence.keys() - encoders.keys():
                errors[row] = f"has the field {min(map(str, unknown))}; {known}"
                continue
        if lacking := [name for name in encoders if name not in sequence]:
            errors[row] = f"has no field {lacking[0]}; {known}"
            continue
        for name, encoder in encoders.items():
            try:
                columns[name][row] = encoder.from_python(sequence[name])
            except UnfitValueError as error:
                errors[row] = f"{name} {error}"
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                errors[row] = f"{name} is not {encoder.expected}"
    arrays = {name: pa.array(columns[name], encoder.canonical_type) for name, encoder in encoders.items()}
    return pa.record_batch(arrays), errors


def as_row(sequence: Any, encoders: Mapping[str, FieldEncoder]) -> Mapping[Any, Any]:
    """Return a sequence as a dict of lists, in which a list of objects is a list for each member (`with_members`).

    Raises ValueError for a list where the model has several fields, even if it is a valid value of each field.
    """
    expanded: dict[Any, Any] = {}
    for name, value in (sequence if isinstance(sequence, Mapping) else {next(iter(encoders)): sequence}).items():
        if isinstance(value, (list, tuple)) and value and all(isinstance(token, Mapping) for token in value):
            for member in dict.fromkeys(key for token in value for key in token):
                expanded[member] = [token.get(member) for token in value]
        else:
            expanded[name] = value
    if len(encoders) > 1 and sequence is next(iter(expanded.values()), None):
        raise ValueError(f"is not a dict of the fields {', '.join(encoders)}")
    return expanded


def _join_parts(row: Mapping[Any, Any], encoders: Mapping[str, FieldEncoder]) -> Mapping[Any, Any]:
    """Join the lists that form one value, such as a tree, into one dict.

    In the returned row, the key of the joined dict is the field name.
    """
    for name, encoder in encoders.items():
        parts = {part: row[part] for part in encoder.parts if part in row and part not in encoders}
        if parts and name not in row:
            row = {name: parts, **{other: value for other, value in row.items() if other not in parts}}
    return row


def _name_with_columns(encoder: FieldEncoder) -> str:
    columns = f" ({', '.join(encoder.field.columns)})" if encoder.parts else ""
    return encoder.field.name + columns


def _by_field(
    row: Mapping[Any, Any],
    encoders: Mapping[str, FieldEncoder],
    field_of_column: Mapping[str, str],
    ignored: Collection[str],
) -> dict[Any, Any]:
    """Replace column names by field names in the keys of a row, and drop the ignored columns."""
    return {
        name if name in encoders else field_of_column.get(name, name): value
        for name, value in row.items()
        if name in encoders or name not in ignored
    }
