"""Values of encoded rows that training did not have, and numbers far from those of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.ragged import Ragged

FAR = 10.0  # standard deviations from the mean of the training data; a number beyond this distance is called far
BLOCK_TOKENS = 250_000  # approximate number of tokens that are measured at a time; small blocks stay in the CPU cache


class StrangeValues(NamedTuple):
    """Unknown values and far numbers of N rows.

    `unknown`: (N,) float32 fraction of the tokens of each row with an unknown value, None if no field has unknown
    values. `far`: (N,) float32 largest absolute deviation of a number of the row from the mean of the training data, in
    standard deviations; None if no field has scaled numbers. Both are 0 for a row without tokens. `unknown_tokens`,
    `far_tokens`: number of tokens of all rows with an unknown value, and with a number farther than `FAR`.
    """

    unknown: np.ndarray | None
    far: np.ndarray | None
    unknown_tokens: int
    far_tokens: int


def strange_columns(encoders: Mapping[str, FieldEncoder]) -> list[str]:
    """Return the names of the measures that the fields have, `unknown` and `far`, in this order."""
    has_unknown = any(encoder.unknown_id is not None for encoder in encoders.values())
    has_numbers = any(encoder.scaled_channels for encoder in encoders.values())
    return ["unknown"] * has_unknown + ["far"] * has_numbers


def strange_values(encoders: Mapping[str, FieldEncoder], sequences: Ragged) -> StrangeValues:
    """Measure the unknown values and the far numbers of encoded rows.

    A token with unknown values in several fields counts once.
    """
    unknown_ids = {name: id for name, encoder in encoders.items() if (id := encoder.unknown_id) is not None}
    channels = {name: scaled for name, encoder in encoders.items() if (scaled := encoder.scaled_channels)}
    unknown, far = np.zeros((2, len(sequences)), np.float32)
    unknown_tokens = far_tokens = 0
    lengths = sequences.lengths
    rows = np.flatnonzero(lengths)  # `reduceat` needs a token in each row
    block = np.cumsum(lengths[rows], dtype=np.int64) // BLOCK_TOKENS
    for some in np.split(rows, np.flatnonzero(np.diff(block)) + 1):
        if not len(some):
            continue
        start, stop = sequences.offsets[some[0]], sequences.offsets[some[-1] + 1]
        starts = sequences.offsets[some] - start
        fields = {name: values[start:stop] for name, values in sequences.fields.items()}
        if unknown_ids:
            is_unknown = _unknown_tokens(unknown_ids, fields)
            counts = np.add.reduceat(is_unknown, starts, dtype=np.int64)
            unknown[some] = counts / lengths[some]
            unknown_tokens += int(counts.sum())
        if channels:
            distance = _distances(channels, fields)
            far[some] = np.maximum.reduceat(distance, starts)
            far_tokens += int(np.count_nonzero(distance > FAR))
    return StrangeValues(unknown if unknown_ids else None, far if channels else None, unknown_tokens, far_tokens)


def _unknown_tokens(unknown_ids: Mapping[str, int], fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the (S,) mask of the tokens with an unknown value in any field."""
    masks = [fields[name] == id for name, id in unknown_ids.items()]
    return np.logical_or.reduce([mask if mask.ndim == 1 else mask.any(axis=1) for mask in masks])


def _distances(channels: Mapping[str, list[int]], fields: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the (S,) largest absolute value of each token over the given channels of the fields."""
    # A loop over a few columns is faster than a maximum over the short last axis.
    columns = [fields[name][:, channel] for name, some in channels.items() for channel in some]
    largest = np.abs(columns[0])
    for column in columns[1:]:
        np.maximum(largest, np.abs(column), out=largest)
    return largest
