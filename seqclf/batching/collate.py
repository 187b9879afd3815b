"""Collate ragged rows into one right-padded batch, with a single gather per field."""

from __future__ import annotations

import numpy as np

from seqclf.batching.bucket_boundaries import round_up
from seqclf.data.storage.ragged import Ragged


def pad(
    sequences: Ragged, rows: np.ndarray, edges: np.ndarray | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the fields of `rows`, padded with zeros, and their lengths (B,) int64.

    `fields[name]`: (B, T) int64 or (B, T, D) float32. T is the longest length of the batch, rounded up to the next of
    the bucket boundaries `edges`.

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
        gathered = values[indices]
        if gathered.ndim == 2:
            fields[name] = np.where(inside, gathered, 0).astype(np.int64)
        else:
            # Chosen, not multiplied by a mask: zero times NaN would be NaN.
            fields[name] = np.where(inside[..., None], gathered, np.float32(0))
    return fields, lengths
