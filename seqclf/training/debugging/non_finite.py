"""Non-finite values of a tensor: their kinds, and the rows of the batch that hold them, padding excluded."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from seqclf.batching.datamodule import Batch
from seqclf.training.debugging.nested_tensors import Leaf, values_of


def is_finite(leaf: Leaf) -> bool:
    """Return True if all values are finite. Whole numbers and booleans always are."""
    values = values_of(leaf)
    return not (values.is_floating_point() or values.is_complex()) or bool(torch.isfinite(values).all())


def kinds(values: Tensor) -> list[str]:
    """Return the kinds of non-finite values in a tensor: NaN, Inf and -Inf.

    >>> kinds(torch.tensor([1.0, float("inf"), float("nan")]))
    ['NaN', 'Inf']
    """
    present = {"NaN": values.isnan(), "Inf": values.isposinf(), "-Inf": values.isneginf()}
    return [kind for kind, where in present.items() if bool(where.any())]


def affected_rows(leaf: Leaf, lengths: np.ndarray, longest: int) -> np.ndarray | None:
    """Return the positions in the batch of rows with a non-finite value, or None if its axes do not tell them.

    `lengths`: (B,). `longest`: T. What lies beyond a length is padding, which may hold anything: the result is empty
    where only padding is not finite. Known are (B, T, …), (B, D) and packed sequences.

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
    # (B, T) may also be (B, D) with as many channels as there are tokens.
    return rows if len(rows) or wrong.ndim > 2 else None


def _packed_rows(packed: PackedSequence) -> np.ndarray:
    """(S,) position in the batch of each value of a packed sequence, which holds all first tokens, then all second."""
    sizes = packed.batch_sizes.numpy()
    sorted_rows = np.concatenate([np.arange(size) for size in sizes])
    return sorted_rows if packed.sorted_indices is None else packed.sorted_indices.cpu().numpy()[sorted_rows]


def longest_of(batch: Batch) -> int:
    """Return the number of tokens T that the sequences of a batch are padded to."""
    return max(values.shape[1] for values in batch.fields.values())


def single_row(batch: Batch, row: int) -> Batch:
    """Return one row of a batch as a batch without padding. `row`: its position in the batch."""
    length, longest = int(batch.host_lengths[row]), longest_of(batch)
    one = slice(row, row + 1)
    fields = {
        name: values[one, :length] if values.shape[1] == longest else values[one]
        for name, values in batch.fields.items()
    }
    return batch._replace(
        fields=fields,
        lengths=batch.lengths[one],
        labels=batch.labels[one],
        host_lengths=batch.host_lengths[one],
        ids=batch.ids[one],
    )
