"""Collate rows of different lengths into one right-padded batch. Each field takes a single gather operation."""

from __future__ import annotations

import numpy as np

from seqclf.data.ragged import Ragged


def pad(sequences: Ragged, rows: np.ndarray, width: int | None = None) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Pad the fields of `rows` with zeros. Return the padded fields, and the (B,) int64 lengths of `rows`.

    `fields[name]`: (B, T) int64, (B, T, D) float32, or (B, T, K) int64, where K is the largest number of ids of a token
    in the batch, and T the longest length, or `width`. A static field has no axis of tokens.

    >>> words = Ragged(np.array([0, 3, 5, 6]), {"word": np.array([7, 8, 9, 4, 5, 6])})
    >>> fields, lengths = pad(words, np.array([2, 0]))
    >>> fields["word"].tolist(), lengths.tolist()
    ([[6, 0, 0], [7, 8, 9]], [1, 3])
    """
    starts = sequences.offsets[rows]
    lengths = sequences.offsets[rows + 1] - starts
    tokens = np.arange(lengths.max() if width is None else width)
    inside = tokens < lengths[:, None]
    # A padding position reads the first token of its row, which always exists, and is replaced by zero below.
    indices = np.where(inside, starts[:, None] + tokens, starts[:, None])
    fields = {}
    for name, values in sequences.fields.items():
        # Use np.where and not a multiplication by the mask, because 0 * NaN is NaN.
        mask = inside.reshape(*inside.shape, *[1] * (values.ndim - 1))
        padded = np.where(mask, values[indices], values.dtype.type(0))
        if values.dtype.kind == "f":
            fields[name] = padded
            continue
        if padded.ndim == 3:  # the zeros of a token come after its ids, so a trailing column of zeros holds no id
            used = np.flatnonzero(padded.any(axis=(0, 1)))
            padded = padded[..., : used[-1] + 1 if len(used) else 1]
        fields[name] = padded.astype(np.int64)
    for name, values in sequences.static.items():
        fields[name] = values[rows] if values.dtype.kind == "f" else values[rows].astype(np.int64)
    return fields, lengths
