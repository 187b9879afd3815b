"""Row checks: find the rows of a record batch that must be rejected, and the reasons."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import may_be_cut
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.ragged import lengths_or_zero
from seqclf.data.schema.casts import ID, LABEL, UNLABELLED, UNORDERED
from seqclf.data.schema.problems import Problems, true_rows
from seqclf.data.schema.schema import Field, Schema

ORDER_REMEDY = "say how it is written, data.order_format=%d.%m.%Y, or sort by its letters, data.order_format=text"
SHOWN_VALUES = 3  # values of a static field that an error names
EMPTY_REASON = "has no token that the tokenizer knows; a sequence needs at least one"


def check_rows(
    columns: pa.RecordBatch, schema: Schema, encoders: Mapping[str, FieldEncoder], labelled: bool = True
) -> Problems:
    """Check each row of canonical columns. `encoders` need not be fit. `labelled`: True to check the labels too."""
    problems = Problems(columns.num_rows)
    if schema.group_by and ID in columns.schema.names:
        ungrouped = true_rows(columns.column(ID).is_null())
        problems.mark(ungrouped, schema.group_by[0], "is empty; an event needs its group")
    if labelled and UNLABELLED in columns.schema.names:
        unlabelled = true_rows(columns.column(UNLABELLED))
        ids = columns.column(ID).take(pa.array(unlabelled)).to_pylist()
        name = ", ".join(schema.group_by) or str(schema.id)
        problems.mark(unlabelled, name, [f"is '{id}', which no row of data.labels has" for id in ids])
    if labelled and schema.label is not None:
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(columns.column(LABEL)), ""), True)
        differs = ", or differs between the events of a group" if schema.group_by else ""
        problems.mark(true_rows(blank), schema.label, f"is empty{differs}; fill in the label or remove the row")
    if UNORDERED in columns.schema.names:
        _check_order(columns.column(UNORDERED), problems)
    first = schema.token_fields[0]
    for field in schema.fields:
        encoders[field.name].check(columns, problems)
        if field.static:
            _check_static(columns.column(field.name), field, problems)
        elif field is not first:
            _check_lengths(columns, first, field, problems)
    return problems


def _check_static(cells: pa.ListArray, field: Field, problems: Problems) -> None:
    """Mark rows with several values of a static field."""
    bad = np.flatnonzero(lengths_or_zero(cells) > 1)
    reasons = []
    for values in cells.take(pa.array(bad)).to_pylist():
        texts = list(dict.fromkeys("missing" if value is None else f"{value}" for value in values))
        shown = ", ".join(texts[:SHOWN_VALUES]) + ", …" * (len(texts) > SHOWN_VALUES)
        reasons.append(f"changes within the sequence ({shown}); a static field has one value ({field.key})")
    problems.mark(bad, field.column, reasons)


def _check_order(cells: pa.ListArray, problems: Problems) -> None:
    """Mark sequences with an event that cannot be sorted. `cells`: the canonical column UNORDERED."""
    values = pc.list_flatten(cells)
    tokens = true_rows(values.is_valid())
    rows, first = np.unique(np.repeat(np.arange(len(cells)), lengths_or_zero(cells))[tokens], return_index=True)
    for row, token in zip(rows, tokens[first], strict=True):
        column, _, cell = values[int(token)].as_py().partition("\x1f")
        problems.mark(np.array([row]), column, f"is '{cell}', no number and no time; {ORDER_REMEDY}", np.array([token]))


def _check_lengths(columns: pa.RecordBatch, first: Field, field: Field, problems: Problems) -> None:
    lengths, expected = (lengths_or_zero(columns.column(name)) for name in (field.name, first.name))
    bad = np.flatnonzero(problems.usable & (lengths != expected))
    reasons = [
        f"has {lengths[row]} tokens where {first.column} has {expected[row]}; each token needs a value of every field"
        for row in bad
    ]
    problems.mark(bad, field.column, reasons)


def check_encoded_lengths(rows: np.ndarray, lengths: np.ndarray, schema: Schema, problems: Problems) -> None:
    """Mark encoded rows without tokens, and those that are too long for a schema that rejects long rows.

    `rows`: (M,) row numbers. `lengths`: (M,) numbers of tokens before truncation.
    """
    column, limit = schema.token_fields[0].column, schema.max_length
    problems.mark(rows[lengths == 0], column, EMPTY_REASON)
    if limit is not None and schema.truncate == "error" and (lengths > limit).any():
        problems.mark(rows[lengths > limit], column, too_long_reason(lengths, schema))


def too_long_reason(lengths: np.ndarray, schema: Schema) -> str:
    """Return the reason for rejecting a sequence that exceeds `max_length`. `lengths`: (N,) before truncation."""
    longest = int(lengths.max())
    remedy = "set data.truncate=keep_first or keep_last, or raise data.max_length"
    if not may_be_cut(schema.fields):
        remedy = "a tree cannot be cut; raise data.max_length, or set data.max_length=null"
    return f"has more than data.max_length={schema.max_length} tokens (the longest {longest}); {remedy}"
