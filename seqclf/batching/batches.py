"""Padded batches of the rows of a split: those of the loaders, and those that a network reads outside of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from seqclf.batching.collate import pad
from seqclf.data.storage.store import Split, release_pages, size_in_bytes

RESIDENT_BYTES = 256 * 2**20  # size of a split above which its memory pages are released while it is read
RESIDENT_ROWS = 1024  # rows that are read before that, because each maps about 64 kB of the file into memory


class Batch(NamedTuple):
    """Batch of right-padded sequences, a NamedTuple so that PyTorch pins each field.

    `fields[name]`: (B, T) int64 or (B, T, D) float32. `lengths`: (B,) int64 in [1, T]. `labels`: (B,) int64. On the
    host, `host_lengths` and `ids`, row indices in the split: (B,) arrays. `weight`: factor for the mean loss: 1, or
    (rows of the batch) / (mean rows per batch), or 0 for the one short row of a rank without rows in a step.
    `row_weights`: (B,) float32 weights of `data.weight`, of mean 1 over the split, or None.
    """

    fields: dict[str, Tensor]
    lengths: Tensor
    labels: Tensor
    host_lengths: np.ndarray
    ids: np.ndarray
    weight: float = 1.0
    row_weights: Tensor | None = None

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with its tensors on `device`. Lightning would take 0.1 ms to traverse the fields."""
        device = torch.device(device)
        if self.lengths.device == device:
            return self
        # A copy from pinned memory to a GPU runs while the host continues.
        beside = device.type not in ("cpu", "mps")
        fields = {name: values.to(device, non_blocking=beside) for name, values in self.fields.items()}
        lengths, labels = (values.to(device, non_blocking=beside) for values in (self.lengths, self.labels))
        weights = None if self.row_weights is None else self.row_weights.to(device, non_blocking=beside)
        return self._replace(fields=fields, lengths=lengths, labels=labels, row_weights=weights)


class BatchDataset(Dataset):
    """Returns a padded batch for an array of row indices. `mean_rows`: divisor in `Batch.weight`, None for weight 1."""

    def __init__(self, split: Split, mean_rows: float | None = None):
        self.split = split
        self.mean_rows = mean_rows
        weights = split.mean_weights
        self.row_weights = None if weights is None else weights.astype(np.float32)
        self.large = size_in_bytes(split.sequences) > RESIDENT_BYTES
        self.rows_read = 0

    def __getitem__(self, rows: np.ndarray) -> Batch:
        if not len(rows):  # every rank needs a batch at each step, because ranks exchange gradients
            return self[np.array([self.split.sequences.lengths.argmin()])]._replace(weight=0.0)
        self.rows_read += len(rows)
        if self.large and self.rows_read > RESIDENT_ROWS:
            self.rows_read = 0
            release_pages(self.split.sequences)
        fields, lengths = pad(self.split.sequences, rows)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        labels = torch.from_numpy(self.split.labels[rows])
        weight = 1.0 if self.mean_rows is None else len(rows) / self.mean_rows
        of_rows = None if self.row_weights is None else torch.from_numpy(self.row_weights[rows])
        return Batch(tensors, torch.from_numpy(lengths), labels, lengths, rows, weight, of_rows)


class RowBatch(NamedTuple):
    """Padded batch of rows. `rows`: (B,) positions. `fields`: dict field → (B, T, …). `lengths`: (B,) int64."""

    rows: np.ndarray
    fields: dict[str, Tensor]
    lengths: Tensor


class SplitRows:
    """The rows of a split, for the methods `fit_to` and `fit_to_validation` of a network.

    `digest`: hash of the data set. `class_weights`: (C,) weights above 0 of the classes in the loss. `weights`: (N,)
    weights of the rows, of mean 1, or None.
    """

    def __init__(self, split: Split, digest: str, class_weights: np.ndarray, device: torch.device | str = "cpu"):
        self.split = split
        self.digest = digest
        self.class_weights = class_weights
        self.device = torch.device(device)
        self.weights = split.mean_weights
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
