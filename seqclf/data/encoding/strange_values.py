"""Values of encoded rows that training did not have, and numbers far from those of training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.ragged import Ragged

FAR = 10.0  # standard deviations from the mean of the training data; a number beyond this distance is called far
BLOCK_TOKENS = 250_000  # average number of tokens that are measured at a time; small blocks stay in the CPU cache


class StrangeValues(NamedTuple):
    """Unknown values and far numbers of N rows.

    `columns`: dict of (N,) float32 measures, 0 for a row without tokens. `unknown`: fraction of tokens with an unknown
    value, if the fields can have any. `far`: largest absolute deviation of a number from the mean of training, in
    standard deviations, if numbers are scaled. `unknown_tokens`, `far_tokens`: number of such tokens, with a number
    farther than `FAR`.
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
