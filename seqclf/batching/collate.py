"""Collate ragged rows into one right-padded batch, with a single gather per field."""

from __future__ import annotations

import numpy as np

from seqclf.batching.plan import round_up
from seqclf.data.ragged import Ragged


def pad(
    sequences: Ragged, rows: np.ndarray, edges: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the fields of `rows`, padded with zeros, and their lengths (B,) int64.

    `fields[name]`: (B, T) int64, (B, T, D) float32, or (B, T, K) int64 for several ids per token, where K is the most
    that a token of the batch has. T is the longest length of the batch, rounded up to the next of the bucket boundaries
    `edges`.

    >>> words = Ragged(np.array([0, 3, 5, 6]), {"word": np.array([7, 8, 9, 4, 5, 6])})
    >>> fields, lengths = pad(words, np.array([2, 0]))
    >>> fields["word"].tolist(), lengths.tolist()
    ([[6, 0, 0], [7, 8, 9]], [1, 3])
    """
    starts = sequences.offsets[rows]
    lengths = sequences.offsets[rows + 1] - starts
    longest = lengths.max(keepdims=True)
    if edges is not None:
        longest = round_up(longest, edges)
    tokens = np.arange(longest[0])
    inside = tokens < lengths[:, None]
    # Padding reads the first token of its row, an index that always exists, and is zeroed below.
    indices = np.where(inside, starts[:, None] + tokens, starts[:, None])
    fields = {}
    for name, values in sequences.fields.items():
        # Chosen, not multiplied by a mask: zero times NaN would be NaN.
        mask = inside.reshape(*inside.shape, *[1] * (values.ndim - 1))
        padded = np.where(mask, values[indices], values.dtype.type(0))
        if values.dtype.kind == "f":
            fields[name] = padded
            continue
        if padded.ndim == 3:  # the ids of a token come first, so that columns of zeros at the end hold none
            used = np.flatnonzero(padded.any(axis=(0, 1)))
            padded = padded[..., : used[-1] + 1 if len(used) else 1]
        fields[name] = padded.astype(np.int64)
    return fields, lengths
