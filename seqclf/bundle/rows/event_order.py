"""Order of events in sequences in memory. The columns of `data.order_by` sort them like the events of files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.encoding.row_checks import ORDER_REMEDY
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
        self.names = {
            column: [
                name for name in (column, fields.get(column)) if name == fields.get(column) or name not in encoders
            ]
            for column in schema.order_by
        }
        # Names of values that are sorted. Those of a static field have no order.
        self.read = {name for field in schema.token_fields for name in (field.name, *field.columns)}
        self.extra = {column for column in schema.order_by if column not in fields and column not in encoders}
        self.times = {name: encoder for name, encoder in encoders.items() if isinstance(encoder, TimeEncoder)}
        self.as_text = schema.order_format == AS_TEXT
        options = {} if schema.order_format is None or self.as_text else {"format": schema.order_format}
        self.encoder = TimeEncoder(Field("order", "time", schema.order_by[:1], options=options))

    def sort(self, row: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return a sequence with its events in order, without the columns that are not fields.

        Raises ValueError if a value cannot be compared, if a list has another length than that of the order, or if a
        time goes back in a sequence without the columns of the order.
        """
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
            value = timedelta(
                hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
            )
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
        is_exact = value.dtype == "datetime64[ns]"  # Python's times have no nanoseconds
        return (
            list(value) if is_exact else (value.astype("datetime64[us]") if value.dtype.kind == "M" else value).tolist()
        )
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Mapping)) else None
