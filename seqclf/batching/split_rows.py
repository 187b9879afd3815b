"""Rows of a split that a network reads outside of its training steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqclf.batching.collate import pad
from seqclf.data.storage.store import Split


class RowBatch(NamedTuple):
    """Padded batch of some rows.

    `rows`: (B,) positions in the split. `fields`: dict field → (B, T, …). `lengths`: (B,) int64.
    """

    rows: np.ndarray
    fields: dict[str, Tensor]
    lengths: Tensor


class SplitRows:
    """The rows of a split, for the methods `fit_to` and `fit_to_validation` of a network.

    `digest`: hash of the data set. `class_weights`: (C,) weights of the classes in the loss, above 0. `device`: that of
    the tensors of a batch.
    """

    def __init__(self, split: Split, digest: str, class_weights: np.ndarray, device: torch.device | str = "cpu"):
        self.split = split
        self.digest = digest
        self.class_weights = class_weights
        self.device = torch.device(device)
        self.lengths: np.ndarray = split.sequences.lengths
        self.labels: np.ndarray = np.array(split.labels)  # a copy, which PyTorch may take

    @property
    def folder(self) -> Path | None:
        """Folder of the files of the split, None for a split in memory."""
        arrays = self.split.sequences.fields.values()
        names = [array.filename for array in arrays if isinstance(array, np.memmap) and array.filename]
        return Path(names[0]).parent if names else None

    def __len__(self) -> int:
        return len(self.lengths)

    def sample(self, max_rows: int, max_tokens: int, seed: int) -> np.ndarray:
        """Return the positions of random rows, with at most `max_rows` rows and about `max_tokens` tokens."""
        order = np.random.default_rng(seed).permutation(len(self))[:max_rows]
        return order[: max(1, int(np.searchsorted(np.cumsum(self.lengths[order]), max_tokens)))]

    def batches(self, rows: np.ndarray | None = None, max_tokens: int = 8192) -> Iterator[RowBatch]:
        """Yield batches of `rows`, or of all rows, sorted by length, with at most `max_tokens` tokens with padding."""
        rows = np.arange(len(self)) if rows is None else rows
        rows = rows[np.argsort(self.lengths[rows], kind="stable")]
        first = 0
        while first < len(rows):
            count = 1
            while first + count < len(rows) and self.lengths[rows[first + count]] * (count + 1) <= max_tokens:
                count += 1
            yield self._batch(rows[first : first + count])
            first += count

    def _batch(self, rows: np.ndarray) -> RowBatch:
        fields, lengths = pad(self.split.sequences, rows)
        tensors = {name: torch.from_numpy(values).to(self.device) for name, values in fields.items()}
        return RowBatch(rows, tensors, torch.from_numpy(lengths).to(self.device))
