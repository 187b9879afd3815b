"""Conversion of Python rows (sequences in memory) to canonical Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.bundle.rows.event_order import EventOrder
from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.encoding.field_encoder import EncodedField, FieldEncoder, UnfitValueError
from seqclf.data.ragged import Ragged, list_offsets
from seqclf.data.reading.queries import passes_through
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError


def require_unchanged_fields(query: str | None, schema: Schema, where: str, remedy: str) -> None:
    """Raise InputError if the SQL text `query` (the key `data.query`) changes a column of a field.

    It is not applied to Python rows, so it would be unclear if a row holds the value before or after the query.
    """
    if query is not None and not passes_through(query, [column for _, column in schema.columns]):
        problem = "its data.query changes the fields, and is applied to tables and files only"
        raise InputError(where, problem, remedy)


class PythonRows:
    """Converts Python rows to canonical Arrow columns, as the training of a model converted the rows of files.

    A sequence is a text or a list of tokens, of several fields a dict field name → list, and of a tree in several lists
    (words and parents) a dict column name → list. A static field is one value, or its value in each event. The names of
    columns in the training file may stand for field names. Other keys are ignored, as other columns of a file are.

    `field_of_column`: dict column name in the training file → field name. `order`: sorts the events of a sequence like
    those of a file; None without `data.order_by`.
    """

    def __init__(self, schema: Schema, encoders: Mapping[str, FieldEncoder]):
        self.encoders = encoders
        self.field_of_column = {field.columns[0]: field.name for field in schema.fields if len(field.columns) == 1}
        self.order = EventOrder(schema, encoders) if schema.order_by else None
        self._known = f"the fields of the model are {', '.join(map(_name_with_columns, encoders.values()))}"

    def to_columns(self, sequences: Sequence[Any]) -> tuple[pa.RecordBatch, list[str | None]]:
        """Return canonical columns with one row per sequence, and the error of each or None."""
        errors: list[str | None] = [None] * len(sequences)
        columns: dict[str, list[Any]] = {name: [None] * len(sequences) for name in self.encoders}
        for row, sequence in enumerate(sequences):
            try:
                fields = self._fields_of(sequence)
            except ValueError as error:
                errors[row] = str(error)
                continue
            for name, encoder in self.encoders.items():
                try:
                    columns[name][row] = encoder.from_python(fields[name])
                except UnfitValueError as error:
                    errors[row] = f"{name} {error}"
                except (pa.ArrowException, OverflowError, TypeError, ValueError):
                    single = f"a single {encoder.field.kind}"
                    errors[row] = f"{name} is not {single if encoder.field.static else encoder.expected}"
        arrays = {name: pa.array(columns[name], encoder.canonical_type) for name, encoder in self.encoders.items()}
        return pa.record_batch(arrays), errors

    def to_sequences(self, sequences: Sequence[Any], max_length: int | None) -> Ragged | None:
        """Encode sequences without Arrow, None if a value must be converted or checked (see `to_columns`).

        `max_length`: largest number of tokens, beyond which sequences must be cut or rejected.
        """
        try:
            rows = [self._fields_of(sequence) for sequence in sequences]
        except ValueError:
            return None
        encoded: dict[str, EncodedField] = {}
        for name, encoder in self.encoders.items():
            field = encoder.encode_plain([row[name] for row in rows])
            if field is None:
                return None
            encoded[name] = field
        fields = [encoded[name] for name in tokens_of(self.encoders)]
        lengths = fields[0].lengths
        if not lengths.all() or any(not np.array_equal(field.lengths, lengths) for field in fields[1:]):
            return None
        if max_length is not None and lengths.max() > max_length:
            return None
        arrays = {name: values for field in fields for name, values in field.arrays.items()}
        static = {name: encoded[name].arrays[name] for name in static_of(self.encoders)}
        return Ragged(list_offsets(lengths), arrays, static)

    def as_dict(self, sequence: Any) -> dict[Any, Any]:
        """Return a sequence as a dict of lists, in which a list of objects is a list for each member (`with_members`).

        Raises ValueError for a list where the model has several fields, even if it is a valid value of each field.
        """
        given = sequence if isinstance(sequence, Mapping) else {next(iter(self.encoders)): sequence}
        expanded: dict[Any, Any] = {}
        for name, value in given.items():
            if isinstance(value, (list, tuple)) and value and all(isinstance(token, Mapping) for token in value):
                for member in dict.fromkeys(key for token in value for key in token):
                    expanded[member] = [token.get(member) for token in value]
            elif given is not sequence and len(tokens_of(self.encoders)) > 1:
                raise ValueError(f"is not a dict of the fields {', '.join(self.encoders)}")
            else:
                expanded[name] = value
        return expanded

    def _fields_of(self, sequence: Any) -> Mapping[Any, Any]:
        row: Mapping[Any, Any] = self.as_dict(sequence)
        if self.order is not None:
            row = self.order.sort(row)
        for name, encoder in self.encoders.items():
            # Lists that form one value, such as the words and the parents of a tree, are joined.
            parts = {part: row[part] for part in encoder.parts if part in row and part not in self.encoders}
            if parts and name not in row:
                row = {name: parts, **{other: value for other, value in row.items() if other not in parts}}
        fields = {
            name if name in self.encoders else self.field_of_column.get(name, name): value
            for name, value in row.items()
        }
        if lacking := [name for name in self.encoders if name not in fields]:
            raise ValueError(f"has no field {lacking[0]}; {self._known}")
        return fields


def _name_with_columns(encoder: FieldEncoder) -> str:
    columns = f" ({', '.join(encoder.field.columns)})" if encoder.parts else ""
    return encoder.field.name + columns
