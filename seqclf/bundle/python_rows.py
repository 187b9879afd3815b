"""Python values to canonical Arrow columns, for predictions on sequences that are in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from seqclf.data.encoding.encoder import FieldEncoder, UnfitValueError
from seqclf.data.reading.queries import passes_through
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError


def require_unchanged_fields(query: str | None, schema: Schema, where: str, remedy: str) -> None:
    """Raise InputError if data.query changes fields: values in Python may come before the query or after it."""
    if query is not None and not passes_through(query, [column for _, column in schema.columns]):
        problem = "its data.query changes the fields, and is applied to tables and files only"
        raise InputError(where, problem, remedy)


def to_columns(
    sequences: list[Any],
    encoders: Mapping[str, FieldEncoder],
    field_of_column: Mapping[str, str] = MappingProxyType({}),
    ignored: Collection[str] = (),
) -> tuple[pa.RecordBatch, list[str | None]]:
    """Canonical columns of the sequences, and the error of each.

    A sequence is a text, a list of tokens, or, with several fields, a mapping of lists by field name. A tree of lists
    is a mapping of them by column. One that does not fit its field is null in the columns and has an error. The others
    have the error None.

    `field_of_column`: columns of the training file whose names a mapping may use too. `ignored`: other columns that it
    may have, such as the label.
    """
    errors: list[str | None] = [None] * len(sequences)
    columns: dict[str, list[Any]] = {name: [None] * len(sequences) for name in encoders}
    for row, sequence in enumerate(sequences):
        named = isinstance(sequence, Mapping)
        # A list may fit every field, and must not be read as the values of each.
        if len(encoders) > 1 and not named:
            errors[row] = f"is not a dict of the fields {', '.join(encoders)}"
            continue
        if named and not sequence.keys() <= encoders.keys():
            sequence = _by_field(_join_parts(sequence, encoders), encoders, field_of_column, ignored)
            if unknown := sequence.keys() - encoders.keys():
                errors[row] = (
                    f"has the field {min(map(str, unknown))}; the fields of the model are "
                    f"{', '.join(_name_with_columns(encoder) for encoder in encoders.values())}"
                )
                continue
        if named and (lacking := [name for name in encoders if name not in sequence]):
            errors[row] = f"has no field {lacking[0]}; the fields of the model are {', '.join(encoders)}"
            continue
        for name, encoder in encoders.items():
            value = sequence.get(name) if named else sequence
            try:
                columns[name][row] = encoder.from_python(value)
            except UnfitValueError as error:
                errors[row] = f"{name} {error}"
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                errors[row] = f"{name} is not {encoder.expected}"
    arrays = {name: pa.array(columns[name], encoder.canonical_type) for name, encoder in encoders.items()}
    return pa.record_batch(arrays), errors


def _join_parts(row: Mapping[Any, Any], encoders: Mapping[str, FieldEncoder]) -> Mapping[Any, Any]:
    """Return a row in which the lists of one value, such as a tree, are a mapping under the name of their field."""
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
    """Return a row with fields in place of columns, and without those that are ignored."""
    named = {name: value for name, value in row.items() if name in encoders or name not in ignored}
    return {
        field_of_column[name] if name not in encoders and name in field_of_column else name: value
        for name, value in named.items()
    }
