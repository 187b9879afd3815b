"""Positions of rows with non-finite values in a batch, and names of rows in their data file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from seqclf.batching.datamodule import Batch
from seqclf.data.storage.store import Split
from seqclf.training.debugging.module_hooks import Leaf

MAX_NAMED = 4  # maximum number of rows that one message names


def longest_of(batch: Batch) -> int:
    """Return the padded length T of the sequences of a batch, in tokens."""
    return int(next(iter(batch.fields.values())).shape[1])  # fields of tokens come before static fields


def affected_rows(leaf: Leaf, lengths: np.ndarray, longest: int) -> np.ndarray | None:
    """Return the positions of the rows with a non-finite value, or None if `leaf` has no known row axis.

    `lengths`: (B,) number of tokens of each sequence. `longest`: padded length T of the batch. The result is empty if
    only padding is not finite, because padding may hold any value. The row axis is known for packed sequences, and for
    tensors of shape (B, T, …) or (B, D).

    >>> values = torch.zeros(2, 3, 1)
    >>> values[0, 2] = float("nan")
    >>> affected_rows(values, np.array([3, 1]), 3), affected_rows(values, np.array([2, 3]), 3)
    (array([0]), array([], dtype=int64))
    """
    if isinstance(leaf, PackedSequence):
        wrong = ~torch.isfinite(leaf.data).reshape(len(leaf.data), -1).all(dim=1).cpu().numpy()
        return np.unique(_packed_rows(leaf)[wrong])
    if leaf.is_sparse or leaf.dim() == 0 or leaf.shape[0] != len(lengths):
        return None
    wrong = ~torch.isfinite(leaf).cpu().numpy()
    if wrong.ndim == 1 or (wrong.ndim == 2 and wrong.shape[1] != longest):
        return np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
    if wrong.shape[1] != longest:
        return None
    inside = np.arange(longest) < lengths[:, None]
    rows = np.flatnonzero((wrong.reshape(*wrong.shape[:2], -1).any(axis=2) & inside).any(axis=1))
    # A tensor of shape (B, T) is ambiguous, because its second axis may also be D = T channels.
    return rows if len(rows) or wrong.ndim > 2 else None


def _packed_rows(packed: PackedSequence) -> np.ndarray:
    """Return (S,) integers: for each value of a packed sequence, the position of its row in the batch.

    A packed sequence holds the first tokens of all rows, then the second tokens of all rows, and so on.
    """
    sorted_rows = np.concatenate([np.arange(size) for size in packed.batch_sizes.numpy()])
    return sorted_rows if packed.sorted_indices is None else packed.sorted_indices.cpu().numpy()[sorted_rows]


def row_names(split: Split | None, indices: Sequence[int] | np.ndarray) -> str:
    """Return a text with the names of the first few rows and the number of remaining rows.

    The name of a row is its number in the data file, followed by the id of the row if the id differs from the number.

    >>> import pyarrow as pa
    >>> from seqclf.data.storage.store import Ragged
    >>> sequences = Ragged(np.array([0, 1, 2]), {"token": np.array([1, 2])})
    >>> split = Split(sequences, np.array([0, 1]), pa.array(["3", "b"]), np.array([3, 7]))
    >>> row_names(split, [0, 1]), row_names(None, [0, 1, 2, 3, 4])
    ('row 3, row 7 (id b)', 'row with index 0, row with index 1, row with index 2, row with index 3 and 1 more')
    """
    names = []
    for index in indices[:MAX_NAMED]:
        if split is None:
            names.append(f"row with index {index}")
            continue
        number, row_id = str(split.row_numbers[index]), str(split.ids[index].as_py())
        names.append(f"row {number}" if row_id == number else f"row {number} (id {row_id})")
    more = len(indices) - MAX_NAMED
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
