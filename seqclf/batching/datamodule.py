"""The batches of each split, for Lightning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqclf.batching.collate import pad
from seqclf.batching.sampler import PlanSampler
from seqclf.data.store import Split, release, size_in_bytes

RESIDENT_BYTES = 256 * 2**20
RESIDENT_ROWS = 1024


class Batch(NamedTuple):
    """Right-padded sequences. A NamedTuple, so that Lightning pins and moves it field by field.

    `fields[name]`: (B, T) int64 or (B, T, D) float32; `lengths`: (B,) int64, each in [1, T]; `labels`: (B,) int64.
    `host_lengths` and `ids` (positions in the split) are numpy arrays (B,), which stay on the host.
    """

    fields: dict[str, Tensor]
    lengths: Tensor
    labels: Tensor
    host_lengths: np.ndarray
    ids: np.ndarray


class BatchDataset(Dataset):
    """Indexed by an array of positions, gives the whole padded batch at once.

    Of a split larger than `RESIDENT_BYTES` the pages that were read are given back now and then, so that memory stays
    flat: every row that is touched makes the system map some 64 kB around it.
    """

    def __init__(self, split: Split):
        self.split = split
        self.large = size_in_bytes(split.sequences) > RESIDENT_BYTES
        self.rows_read = 0

    def __getitem__(self, rows: np.ndarray) -> Batch:
        self.rows_read += len(rows)
        if self.large and self.rows_read > RESIDENT_ROWS:
            self.rows_read = 0
            release(self.split.sequences)
        fields, lengths = pad(self.split.sequences, rows)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        labels = torch.from_numpy(self.split.labels[rows])
        return Batch(tensors, torch.from_numpy(lengths), labels, lengths, rows)


class LateLoader(DataLoader):
    """Begins an epoch when its first batch is asked for, not when the iterator is made: Lightning makes the first one
    before a resumed run knows its epoch."""

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        yield from super().__iter__()


class SequenceDataModule(pl.LightningDataModule):
    """Loaders over the splits of a dataset: shuffled length buckets for training, sorted batches for the rest.

    Evaluation batches hold `evaluation_factor` times the tokens and sequences of training ones, as they keep no
    gradients.
    """

    def __init__(
        self,
        splits: dict[str, Split],
        *,
        max_tokens: int,
        max_sequences: int | None,
        pool_batches: int,
        evaluation_factor: int,
        num_workers: int,
        seed: int,
    ):
        super().__init__()
        self.splits = splits
        self.max_tokens = max_tokens
        self.max_sequences = max_sequences
        self.pool_batches = pool_batches
        self.evaluation_factor = evaluation_factor
        self.num_workers = num_workers
        self.seed = seed

    def train_dataloader(self) -> DataLoader:
        return self._loader("train", self.pool_batches, self._ranks())

    def val_dataloader(self) -> DataLoader:
        return self._loader("validation", None, self._ranks())

    def test_dataloader(self) -> DataLoader:
        return self._loader("test", None, self._ranks())

    def evaluation_loader(self, split: str) -> DataLoader:
        """Every row of a split exactly once, on this process alone."""
        return self._loader(split, None, {})

    def _ranks(self) -> dict[str, int]:
        if self.trainer is None:
            return {}
        return {"world_size": self.trainer.world_size, "rank": self.trainer.global_rank}

    def _loader(self, split: str, pool_batches: int | None, ranks: dict[str, int]) -> DataLoader:
        data = self.splits[split]
        factor = 1 if pool_batches is not None else self.evaluation_factor
        sampler = PlanSampler(
            data.sequences.lengths,
            max_tokens=self.max_tokens * factor,
            max_sequences=self.max_sequences and self.max_sequences * factor,
            pool_batches=pool_batches,
            seed=self.seed,
            **ranks,
        )
        workers: dict[str, Any] = {"num_workers": self.num_workers, "persistent_workers": self.num_workers > 0}
        return LateLoader(
            BatchDataset(data),
            batch_size=None,
            sampler=sampler,
            collate_fn=_as_is,  # type: ignore[arg-type]
            pin_memory=torch.cuda.is_available(),
            **workers,
        )


def _as_is(batch: Batch) -> Batch:
    """PyTorch's default would turn the arrays that stay on the host into tensors, which then move to the device."""
    return batch
