"""Rows → numbers that rows of equal steps share: how duplicates are found."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoders import Encoder

# Odd constants of splitmix64 (Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014).
POSITION, FIRST, SECOND = (np.uint64(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def sequence_keys(batch: pa.RecordBatch, encoders: Mapping[str, Encoder]) -> np.ndarray:
    """(N,) uint64 of staged rows: equal where every field of every step is, and else different but for chance.

    Over all rows of one preparation only: category codes are provisional.
    """
    odd = np.random.default_rng(0).integers(1 << 62, 1 << 63, len(encoders), dtype=np.uint64) | np.uint64(1)
    steps: np.ndarray | None = None
    for factor, (name, encoder) in zip(odd, encoders.items(), strict=True):
        bits = encoder.bits(batch.column(name))
        if len(encoders) == 1 and not pa.types.is_list(batch.column(name).type):
            return bits
        steps = bits * factor if steps is None else steps + bits * factor
    assert steps is not None
    lengths = pc.list_value_length(batch.column(next(iter(encoders)))).to_numpy(zero_copy_only=False).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    places = (np.arange(len(steps)) - np.repeat(starts, lengths)).astype(np.uint64)
    steps = (steps + (places + np.uint64(1)) * POSITION) * FIRST
    steps ^= steps >> np.uint64(29)
    steps *= SECOND
    steps ^= steps >> np.uint64(32)
    return np.add.reduceat(steps, starts) if len(steps) else np.zeros(0, np.uint64)
