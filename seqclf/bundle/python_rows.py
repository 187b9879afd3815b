"""Python rows (sequences in memory): conversion to canonical Arrow columns, with the events in the order of files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.encoding.field_encoder import EncodedField, FieldEncoder, UnfitValueError
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.encoding.row_checks import ORDER_REMEDY
from seqclf.data.ragged import Ragged, list_offsets
from seqclf.data.schema.casts import seconds_from_text
from seqclf.data.schema.cell_types import is_missing
from seqclf.data.schema.schema import AS_TEXT, Field, Schema

Key = tuple[tuple[bool, Any, str], ...]


class EventOrder:
    """Sorts the events of a sequence in memory as `read_events` sorts the events of a file.

    A sequence is a dict column or field → list with a value of each event, also of `data.order_by`. Events with equal
    values keep the order in which they are given, and missing values come last.
    """

    def __init__(self, schema: Schema, encoders: Mapping[str, FieldEncoder]):
        fields = {field.columns[0]: field.name for field in schema.fields if len(field.columns) == 1}
        # Dict column → its names in a sequence. A field may have the name of a column that it does not read.
        self.names = {}
        for column in schema.order_by:
            names = (column, fields.get(column))
            self.names[column] = [name for name in names if name == fields.get(column) or name not in encoders]
        # Names of values that are sorted. Those of a static field have no order.
        self.read = {name for field in schema.token_fields for name in (field.name, *field.columns)}
        self.extra = {column for column in schema.order_by if column not in fields and column not in encoders}
        self.times = {name: encoder for name, encoder in encoders.items() if isinstance(encoder, TimeEncoder)}
        self.as_text = schema.order_format == AS_TEXT
        options = {} if schema.order_format is None or self.as_text else {"format": schema.order_format}
        self.encoder = TimeEncoder(Field("order", "time", schema.order_by[:1], options=options))

    def sort(self, row: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return a sequence with its events in order, without the columns that are not fields, or raise ValueError."""
        kept = {name: value for name, value in row.items() if name not in self.extra}
        keys = self.keys(row)
        if keys is None:
            self._require_ascending(row)
            return kept
        order = sorted(range(len(keys)), key=keys.__getitem__)
        for name, value in kept.items():
            values = _listed(value) if name in self.read else None
            if values is None:
                continue
            if len(values) != len(keys):
                raise ValueError(f"{name} has {len(values)} tokens where {next(iter(self.names))} has {len(keys)}")
            kept[name] = [values[index] for index in order]
        return kept

    def keys(self, row: Mapping[Any, Any]) -> list[Key] | None:
        """Return the sort key of each event, or None if the columns of the order are not given."""
        columns: list[list[Any]] = []
        for names in self.names.values():
            name = next((name for name in names if name in row), None)
            if name is None:
                continue
            values = _listed(row[name])
            if values is None or (columns and len(values) != len(columns[0])):
                raise ValueError(f"{name} is not a list with a value of each event")
            columns.append([self._key(name, self.times.get(str(names[-1]), self.encoder), value) for value in values])
        if columns and len(columns) < len(self.names):
            raise ValueError(f"lacks a column of data.order_by ({', '.join(self.names)}); give all of them, or none")
        return list(zip(*columns, strict=True)) if columns else None

    def _key(self, name: str, encoder: TimeEncoder, value: Any) -> tuple[bool, Any, str]:
        try:
            is_text = self.as_text and isinstance(value, str)
            key = math.inf if is_text else self._number(encoder, value)
            if is_text:
                with suppress(ValueError):
                    key = seconds_from_text(value)
            missing = (is_missing(value) and not is_text) or key != key
        except (TypeError, ValueError, OverflowError):
            if not is_missing(value):
                raise ValueError(f"{name} is '{value}', no number and no time; {ORDER_REMEDY}") from None
            missing = True
        return (True, 0, "") if missing else (False, key, value if is_text else "")

    def _number(self, encoder: TimeEncoder, value: Any) -> Any:
        """Return a number in seconds, exactly where floats would round it."""
        if isinstance(value, (int, Decimal)) and encoder is self.encoder:
            return value
        if isinstance(value, np.datetime64):
            return math.nan if np.isnat(value) else Fraction(int(value.astype("datetime64[ns]").astype(int)), 10**9)
        if isinstance(value, time):
            value = datetime.combine(datetime.min, value) - datetime.min
        seconds: Any = value.total_seconds() if isinstance(value, timedelta) else encoder.element_from_python(value)
        nanoseconds = getattr(value, "nanosecond", 0)  # times of pandas have nanoseconds
        return Fraction(seconds) + Fraction(nanoseconds, 10**9) if nanoseconds else seconds

    def _require_ascending(self, row: Mapping[Any, Any]) -> None:
        for name, encoder in self.times.items():
            times = row.get(name, row.get(encoder.field.columns[0]))
            seconds = [self._key(name, encoder, value)[1] for value in _listed(times) or ()]
            if any(later < earlier for earlier, later in pairwise(seconds)):
                columns = ", ".join(self.names)
                raise ValueError(f"{name} goes back in time; give {columns} too, by which the events are sorted")


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value.to_pylist()
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        if not value.ndim:
            return None
        if value.dtype == "datetime64[ns]":  # Python's times have no nanoseconds
            return list(value)
        return (value.astype("datetime64[us]") if value.dtype.kind == "M" else value).tolist()
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Mapping)) else None


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
        columns = {name: f" ({', '.join(each.field.columns)})" if each.parts else "" for name, each in encoders.items()}
        self._known = f"the fields of the model are {', '.join(map(''.join, columns.items()))}"

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
            if (field := encoder.encode_plain([row[name] for row in rows])) is None:
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
        known = {**self.field_of_column, **{name: name for name in self.encoders}}
        fields = {known.get(name, name): value for name, value in row.items()}
        if lacking := [name for name in self.encoders if name not in fields]:
            raise ValueError(f"has no field {lacking[0]}; {self._known}")
        return fields
