"""Ragged arrays: the tokens of all sequences end to end, and list columns of Arrow as such arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Ragged(NamedTuple):
    """N encoded sequences of S tokens in total.

    `offsets`: (N + 1,) int64. The tokens of row i are [offsets[i], offsets[i + 1]). `fields`: name → (S,) int32,
    (S, D) float32, or (S, K) int32 (see `EncodedField`).

    >>> sequences = Ragged(np.array([0, 2, 3]), {"shop": np.array([4, 5, 6])})
    >>> len(sequences), sequences.lengths.tolist()
    (2, [2, 1])
    """

    offsets: np.ndarray
    fields: dict[str, np.ndarray]

    @property
    def lengths(self) -> np.ndarray:
        """(N,) number of tokens of each row."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


def take(sequences: Ragged, rows: np.ndarray) -> Ragged:
    """Copy some sequences in the order of `rows`: (M,) positions. If all are taken in order, nothing is copied.

    >>> sequences = Ragged(np.array([0, 2, 3]), {"shop": np.array([4, 5, 6])})
    >>> last_first = take(sequences, np.array([1, 0]))
    >>> last_first.offsets.tolist(), last_first.fields["shop"].tolist()
    ([0, 1, 3], [6, 4, 5])
    """
    # A copy would read memory-mapped tokens from disk.
    if len(rows) == len(sequences) and (np.diff(rows) == 1).all():
        return sequences
    starts, counts = sequences.offsets[rows], sequences.lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    tokens = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    return Ragged(offsets, {name: values[tokens] for name, values in sequences.fields.items()})


def is_list(kind: pa.DataType) -> bool:
    """True for each of Arrow's list types."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def list_lengths(column: pa.Array) -> np.ndarray:
    """(N,) int64 length of each list."""
    return pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)


def lengths_or_zero(column: pa.Array) -> np.ndarray:
    """(N,) length of each list, 0 for null."""
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)


def list_values(column: pa.Array) -> np.ndarray:
    """(S,) values of all lists, end to end."""
    # list_flatten, unlike the attribute `values`, respects the slice that a filtered batch is.
    return pc.list_flatten(column).to_numpy(zero_copy_only=False)


def vector_values(column: pa.Array, width: int) -> np.ndarray:
    """(S, width) float64 of lists of numbers (`width` 1) or of vectors, NaN where a value is missing."""
    values = pc.list_flatten(column)
    if is_list(values.type):
        values = pc.list_flatten(values)
    return values.to_numpy(zero_copy_only=False).reshape(-1, width)


def list_offsets(lengths: np.ndarray) -> np.ndarray:
    """(N + 1,) int64 bounds of rows of the (N,) lengths: row i is [offsets[i], offsets[i + 1])."""
    return np.concatenate([[0], np.cumsum(lengths)])
