"""List columns of Arrow as flat numpy arrays: lengths of the rows, and values end to end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.cell_types import is_list


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
