"""Values of encoded rows that training did not have, and numbers far from those of training."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.ragged import Ragged

FAR = 10.0  # standard deviations from the mean of the training data; a number beyond this distance is called far
BLOCK_TOKENS = 250_000  # approximate number of tokens that are measured at a time; small blocks stay in the CPU cache


class StrangeValues(NamedTuple):
    """Unknown values and far numbers of N rows.

    `columns`: dict of (N,) float32 measures, 0 for a row without tokens. `unknown` is the fraction of tokens with an
    unknown value; it is left out if no field has unknown values. `far` is the largest absolute deviation of a number
    from the mean of training, in standard deviations; it is left out without scaled numbers. `unknown_tokens`,
    `far_tokens`: number of tokens with an unknown value, and with a number farther than `FAR`.
    """

    columns: dict[str, np.ndarray]
    unknown_tokens: int
    far_tokens: int


def strange_values(encoders: Mapping[str, FieldEncoder], sequences: Ragged) -> StrangeValues:
    """Measure encoded rows. A token with unknown values in several fields counts once."""
    unknown_ids = {name: id for name, encoder in encoders.items() if (id := encoder.unknown_id) is not None}
    channels = [(name, channel) for name, encoder in encoders.items() for channel in encoder.scaled_channels]
    measures = {"unknown": unknown_ids, "far": channels}
    columns = {name: np.zeros(len(sequences), np.float32) for name, measured in measures.items() if measured}
    tokens = np.zeros(2, np.int64)  # tokens with an unknown value, tokens with a far number
    rows = np.flatnonzero(sequences.lengths)  # `reduceat` needs a token in each row
    block = np.cumsum(sequences.lengths[rows], dtype=np.int64) // BLOCK_TOKENS
    for some in np.split(rows, np.flatnonzero(np.diff(block)) + 1) if len(rows) else []:
        start, stop = sequences.offsets[some[0]], sequences.offsets[some[-1] + 1]
        starts, fields = sequences.offsets[some] - start, {n: v[start:stop] for n, v in sequences.fields.items()}
        if unknown_ids:
            masks = (fields[name] == id for name, id in unknown_ids.items())
            is_unknown = reduce(np.logical_or, (mask if mask.ndim == 1 else mask.any(axis=1) for mask in masks))
            counts = np.add.reduceat(is_unknown, starts, dtype=np.int64)
            columns["unknown"][some] = counts / sequences.lengths[some]
            tokens[0] += counts.sum()
        if channels:
            # A maximum over a few columns is faster than one over the short last axis.
            distances = reduce(np.maximum, (np.abs(fields[name][:, channel]) for name, channel in channels))
            columns["far"][some] = np.maximum.reduceat(distances, starts)
            tokens[1] += np.count_nonzero(distances > FAR)
    return StrangeValues(columns, int(tokens[0]), int(tokens[1]))


def strange_columns(encoders: Mapping[str, FieldEncoder]) -> list[str]:
    """Return the names of the measures that rows of these fields have (see `StrangeValues`)."""
    return list(strange_values(encoders, Ragged(np.zeros(1, np.int64), {})).columns)
