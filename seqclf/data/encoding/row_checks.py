"""Checks of rows: those that must be rejected, with the reasons, and encoded values that training did not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import may_be_cut
from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.ragged import Ragged, lengths_or_zero
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


FAR = 10.0  # standard deviations from the mean of the training data; a number beyond this distance is called far
BLOCK_TOKENS = 250_000  # average number of tokens that are measured at a time; small blocks stay in the CPU cache


class StrangeValues(NamedTuple):
    """Unknown values and far numbers of N rows.

    `columns`: dict of (N,) float32 measures, 0 for a row without tokens. `unknown`: fraction of tokens with an unknown
    value, if the fields can have any. `far`: largest absolute deviation of a number from the mean of training, in
    standard deviations, if numbers are scaled. `unknown_tokens`, `far_tokens`: numbers of such tokens, beyond `FAR`.
    """

    columns: dict[str, np.ndarray]
    unknown_tokens: int
    far_tokens: int


class StrangeMeasures:
    """Measures the strange values of encoded rows. `names`: columns of `StrangeValues`.

    `far`: dict field → number of far numbers so far, by which errors name fields.
    """

    def __init__(self, encoders: Mapping[str, FieldEncoder]):
        tokens, static = tokens_of(encoders), static_of(encoders)
        self.ids, self.static_ids = _unknown_ids(tokens), _unknown_ids(static)
        self.channels, self.static_channels = _scaled_channels(tokens), _scaled_channels(static)
        self.numbers = list(dict.fromkeys(name for name, _ in self.channels + self.static_channels))  # fields
        self.names = ["unknown"] * bool(self.ids | self.static_ids)
        self.names += ["far"] * bool(self.channels + self.static_channels)
        self.far: Counter[str] = Counter()

    def measure(self, sequences: Ragged) -> StrangeValues:
        """Measure encoded rows. A token counts once, and a static field counts as a value of every token."""
        columns = {name: np.zeros(len(sequences), np.float32) for name in self.names}
        unknown_tokens = far_tokens = 0
        offsets, lengths = sequences.offsets, sequences.lengths
        rows = np.flatnonzero(lengths)  # `reduceat` needs a token in each row
        step = max(1, BLOCK_TOKENS * len(rows) // max(1, int(offsets[-1] - offsets[0])))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            start, stop = offsets[some[0]], offsets[some[-1] + 1]
            starts = offsets[some] - start
            fields = {name: values[start:stop] for name, values in sequences.fields.items()}
            if self.ids:
                masks = (fields[name] == id for name, id in self.ids.items())
                is_unknown = reduce(np.logical_or, (mask if mask.ndim == 1 else mask.any(axis=1) for mask in masks))
                counts = np.add.reduceat(is_unknown, starts, dtype=np.int64)
                columns["unknown"][some] = counts / lengths[some]
                unknown_tokens += int(counts.sum())
            if self.channels:
                # A maximum over a few columns is faster than one over the short last axis.
                distances = reduce(np.maximum, (np.abs(fields[name][:, channel]) for name, channel in self.channels))
                columns["far"][some] = np.maximum.reduceat(distances, starts)
                if far := int(np.count_nonzero(distances > FAR)):
                    far_tokens += far
                    for name, channel in self.channels:
                        self.far[name] += int(np.count_nonzero(np.abs(fields[name][:, channel]) > FAR))
        for name, id in self.static_ids.items():
            strange = sequences.static[name] == id
            unknown_tokens += round(float(((1 - columns["unknown"]) * lengths)[strange].sum()))
            columns["unknown"][strange] = 1.0
        for name, channel in self.static_channels:
            distances = np.abs(sequences.static[name][:, channel])
            far_tokens += int(lengths[(distances > FAR) & (columns["far"] <= FAR)].sum())
            self.far[name] += int(lengths[distances > FAR].sum())
            columns["far"] = np.maximum(columns["far"], distances)
        return StrangeValues(columns, unknown_tokens, far_tokens)


def _unknown_ids(encoders: Mapping[str, FieldEncoder]) -> dict[str, int]:
    return {name: id for name, encoder in encoders.items() if (id := encoder.unknown_id) is not None}


def _scaled_channels(encoders: Mapping[str, FieldEncoder]) -> list[tuple[str, int]]:
    return [(name, channel) for name, encoder in encoders.items() for channel in encoder.scaled_channels]
