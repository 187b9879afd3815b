"""Python values to canonical Arrow columns, for predictions on sequences that are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.schema.fields import UNITS, Field


def to_columns(sequences: list[Any], fields: tuple[Field, ...]) -> tuple[pa.RecordBatch, list[str | None]]:
    """Canonical columns of the sequences, and the error of each.

    A sequence is a text, a list of tokens, or, with several fields, a mapping of lists by field name. One that does not
    fit its field is null in the columns and has an error. The others have the error None.
    """
    errors: list[str | None] = [None] * len(sequences)
    columns: dict[str, list[Any]] = {field.name: [None] * len(sequences) for field in fields}
    for row, sequence in enumerate(sequences):
        # A list may fit every field, and must not be read as the values of each.
        if len(fields) > 1 and not isinstance(sequence, Mapping):
            errors[row] = f"is not a dict of the fields {', '.join(columns)}"
            continue
        if isinstance(sequence, Mapping) and set(sequence) - set(columns):
            errors[row] = f"has the field {min(set(sequence) - set(columns))}; the bundle knows {', '.join(columns)}"
            continue
        for field in fields:
            value = sequence.get(field.name) if isinstance(sequence, Mapping) else sequence
            try:
                columns[field.name][row] = _to_canonical(value, field)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                errors[row] = f"{field.name} is not {_expected(field)}"
    arrays = {field.name: pa.array(columns[field.name], _arrow_type(field)) for field in fields}
    return pa.record_batch(arrays), errors


def _to_canonical(value: Any, field: Field) -> Any:
    """Convert a value to the Arrow type of a field.

    Raises ValueError, TypeError or an Arrow error if it does not fit.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()  # Python numbers, which the casts below distinguish
    if isinstance(value, str) and not field.running_text:
        raise ValueError("a text is not a list")  # Arrow would take it as a list of characters
    if field.kind == "category" and isinstance(value, (list, tuple)):
        cast = _to_integer if field.values == "integer" else str
        value = [entry if entry is None else cast(entry) for entry in value]
    if field.kind == "time" and isinstance(value, (list, tuple)):
        value = [_to_seconds(entry, field) for entry in value]
    return pa.scalar(value, _arrow_type(field)).as_py()


def _to_seconds(entry: Any, field: Field) -> float | None:
    """Seconds of a `datetime`, UTC if it has no zone, or of a number in the field's unit."""
    if isinstance(entry, datetime):
        return entry.replace(tzinfo=entry.tzinfo or UTC).timestamp()
    return None if entry is None else float(entry) * UNITS[field.option("unit")]


def _to_integer(entry: Any) -> int:
    if isinstance(entry, float) and not entry.is_integer():
        raise ValueError(f"{entry} is not an integer")
    return int(entry)


def _arrow_type(field: Field) -> pa.DataType:
    if field.running_text:
        return pa.string()
    if field.kind == "category":
        return pa.list_(pa.int64() if field.values == "integer" else pa.string())
    return pa.list_(pa.list_(pa.float64()) if (field.width or 1) > 1 else pa.float64())


def _expected(field: Field) -> str:
    if field.kind == "number":
        return "a list of numbers" if field.width == 1 else f"a list of vectors of {field.width} numbers"
    if field.kind == "time":
        return "a list of times"
    return "a text" if field.running_text else f"a list of {field.values}s"
