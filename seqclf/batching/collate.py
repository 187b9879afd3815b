"""Ragged rows → one right-padded batch, by a single gather per field."""

from __future__ import annotations

import numpy as np

from seqclf.batching.bucket_boundaries import round_up
from seqclf.data.storage.ragged import Ragged


def pad(
    sequences: Ragged, rows: np.ndarray, edges: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The rows as `fields[name]`: (B, T) int64 or (B, T, D) float32, zero beyond each length, and lengths (B,) int64.

    T is the longest of the batch, rounded up to the next of `edges`.
    """
    starts = sequences.offsets[rows]
    lengths = sequences.offsets[rows + 1] - starts
    longest = lengths.max(keepdims=True) if edges is None else round_up(lengths.max(keepdims=True), edges)
    steps = np.arange(longest[0])
    inside = steps < lengths[:, None]
    places = np.where(inside, starts[:, None] + steps, starts[:, None])
    fields = {}
    for name, values in sequences.fields.items():
        gathered = values[places]
        if gathered.ndim == 2:
            fields[name] = np.where(inside, gathered, 0).astype(np.int64)
        else:
            fields[name] = np.where(inside[..., None], gathered, np.float32(0))
    return fields, lengths
