"""The batches of each split, for Lightning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_settings
from seqclf.batching.sampler import PlanSampler
from seqclf.data.prefetch import prefetched
from seqclf.data.store import Split, release, size_in_bytes

RESIDENT_BYTES = 256 * 2**20
RESIDENT_ROWS = 1024


class Batch(NamedTuple):
    """Right-padded sequences. A NamedTuple, so that Lightning pins and moves it field by field.

    `fields[name]`: (B, T) int64 or (B, T, D) float32; `lengths`: (B,) int64, each in [1, T]; `labels`: (B,) int64.
    `host_lengths` and `ids` (positions in the split) are numpy arrays (B,), which stay on the host. `weight` is the
    factor of the batch's mean loss: rows of the batch / mean rows of a batch, or 1.
    """

    fields: dict[str, Tensor]
    lengths: Tensor
    labels: Tensor
    host_lengths: np.ndarray
    ids: np.ndarray
    weight: float = 1.0


class BatchDataset(Dataset):
    """Indexed by an array of positions, gives the whole padded batch at once.

    Of a split larger than `RESIDENT_BYTES` the pages that were read are given back now and then, so that memory stays
    flat: every row that is touched makes the system map some 64 kB around it.

    `mean_rows`: mean number of rows of a training batch, the divisor of `Batch.weight`; None weighs every batch 1.
    """

    def __init__(self, split: Split, edges: np.ndarray | None = None, mean_rows: float | None = None):
        self.split = split
        self.edges = edges
        self.mean_rows = mean_rows
        self.large = size_in_bytes(split.sequences) > RESIDENT_BYTES
        self.rows_read = 0

    def __getitem__(self, rows: np.ndarray) -> Batch:
        self.rows_read += len(rows)
        if self.large and self.rows_read > RESIDENT_ROWS:
            self.rows_read = 0
            release(self.split.sequences)
        fields, lengths = pad(self.split.sequences, rows, self.edges)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        labels = torch.from_numpy(self.split.labels[rows])
        weight = 1.0 if self.mean_rows is None else len(rows) / self.mean_rows
        return Batch(tensors, torch.from_numpy(lengths), labels, lengths, rows, weight)


class TrainingLoader(DataLoader):
    """Its state is (epoch, step): how many batches were *trained on*, not how many were gathered.

    `trained` tells (epoch, step) of the running fit. `threaded`: batches are gathered ahead, in a thread.
    """

    sampler: PlanSampler

    def __init__(self, *arguments: Any, trained: Callable[[], tuple[int, int]], threaded: bool, **options: Any):
        super().__init__(*arguments, **options)
        self.trained = trained
        self.threaded = threaded

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        # A generator: it begins when its first batch is asked for, and only then does a resumed run know its epoch.
        batches = super().__iter__()
        yield from prefetched(batches) if self.threaded else batches

    def state_dict(self) -> dict[str, int]:
        epoch, step = self.trained()
        return {"epoch": epoch, "step": step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.sampler.begin(state["epoch"], state["step"])


class SequenceDataModule(pl.LightningDataModule):
    """Loaders over the splits of a dataset: shuffled length buckets for training, sorted batches for the rest.

    Evaluation batches hold `evaluation_factor` times the tokens and sequences of training ones, as they keep no
    gradients. The rest of `batching` is explained in conf/batching/token_budget.yaml.
    """

    def __init__(
        self,
        splits: dict[str, Split],
        *,
        seed: int,
        evaluation_factor: int,
        num_workers: int,
        equal_row_weights: bool,
        **batching: Any,
    ):
        super().__init__()
        self.splits = splits
        self.seed = seed
        self.evaluation_factor = evaluation_factor
        self.num_workers = num_workers
        self.equal_row_weights = equal_row_weights
        self.batching = batching
        self.training: TrainingLoader | None = None
        self.validation: DataLoader | None = None

    def train_dataloader(self) -> DataLoader:
        """One loader for all epochs, so that its workers stay; asked for anew before each epoch, as epochs are of
        different numbers of batches and Lightning counts them then."""
        if self.training is None:
            data = self.splits["train"]
            plan = plan_settings(self.batching, data.sequences.lengths, data.labels)
            sampler = PlanSampler(data.sequences.lengths, **plan, seed=self.seed, **self._ranks())
            self.training = TrainingLoader(
                BatchDataset(data, plan["edges"], sampler.mean_rows if self.equal_row_weights else None),
                sampler=sampler,
                trained=self._trained,
                threaded=self._threaded(),
                **self._options(),
            )
        self.training.sampler.set_epoch(self.trainer.current_epoch if self.trainer else 0)
        return self.training

    def val_dataloader(self) -> DataLoader:
        """Likewise one for all epochs."""
        if self.validation is None:
            self.validation = self._sorted("validation", self._ranks())
        return self.validation

    def test_dataloader(self) -> DataLoader:
        return self._sorted("test", self._ranks())

    def evaluation_loader(self, split: str) -> DataLoader:
        """Every row of a split exactly once, on this process alone."""
        return self._sorted(split, {})

    def _threaded(self) -> bool:
        """Where the CPU itself trains, a thread of the loader's takes a core from it for longer than it saves."""
        return self.num_workers == 0 and self.trainer is not None and self.trainer.strategy.root_device.type != "cpu"

    def _ranks(self) -> dict[str, int]:
        if self.trainer is None:
            return {}
        return {"world_size": self.trainer.world_size, "rank": self.trainer.global_rank}

    def _trained(self) -> tuple[int, int]:
        assert self.trainer is not None
        steps: Any = self.trainer.fit_loop.epoch_loop.batch_progress.current
        return self.trainer.current_epoch, steps.processed

    def _sorted(self, split: str, ranks: dict[str, int]) -> DataLoader:
        data, most = self.splits[split], self.batching["max_sequences"]
        sampler = PlanSampler(
            data.sequences.lengths,
            max_tokens=self.batching["max_tokens"] * self.evaluation_factor,
            max_sequences=most and most * self.evaluation_factor,
            pool_batches=None,
            seed=self.seed,
            **ranks,
        )
        return DataLoader(BatchDataset(data), sampler=sampler, **self._options())

    def _options(self) -> dict[str, Any]:
        return {
            "batch_size": None,
            "collate_fn": _as_is,
            "pin_memory": torch.cuda.is_available(),
            "num_workers": self.num_workers,
            "persistent_workers": self.num_workers > 0,
        }


def _as_is(batch: Batch) -> Batch:
    """PyTorch's default would turn the arrays that stay on the host into tensors, which then move to the device."""
    return batch
