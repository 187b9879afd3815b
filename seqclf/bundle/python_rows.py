"""Python values to canonical Arrow columns, for predictions on sequences that are in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from seqclf.data.encoding.encoder import Encoder


def to_columns(sequences: list[Any], encoders: Mapping[str, Encoder]) -> tuple[pa.RecordBatch, list[str | None]]:
    """Canonical columns of the sequences, and the error of each.

    A sequence is a text, a list of tokens, or, with several fields, a mapping of lists by field name. One that does not
    fit its field is null in the columns and has an error. The others have the error None.
    """
    errors: list[str | None] = [None] * len(sequences)
    columns: dict[str, list[Any]] = {name: [None] * len(sequences) for name in encoders}
    for row, sequence in enumerate(sequences):
        # A list may fit every field, and must not be read as the values of each.
        if len(encoders) > 1 and not isinstance(sequence, Mapping):
            errors[row] = f"is not a dict of the fields {', '.join(encoders)}"
            continue
        if isinstance(sequence, Mapping) and set(sequence) - set(encoders):
            errors[row] = f"has the field {min(set(sequence) - set(encoders))}; the bundle knows {', '.join(encoders)}"
            continue
        for name, encoder in encoders.items():
            value = sequence.get(name) if isinstance(sequence, Mapping) else sequence
            try:
                columns[name][row] = encoder.from_python(value)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                errors[row] = f"{name} is not {encoder.expected}"
    arrays = {name: pa.array(columns[name], encoder.canonical_type) for name, encoder in encoders.items()}
    return pa.record_batch(arrays), errors
