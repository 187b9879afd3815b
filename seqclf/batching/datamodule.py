"""Lightning DataModule that loads the batches of each split."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch.utils.data import DataLoader, DistributedSampler, SequentialSampler

from seqclf.batching.batches import Batch, BatchDataset
from seqclf.batching.plan import plan_batches
from seqclf.batching.resume_settings import PLAN_KEYS, POSITION, RANKS, check_same_batches
from seqclf.config.command_keys import default_settings
from seqclf.data.storage.prefetch import prefetched
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.settings.base import parse_options
from seqclf.settings.train_settings import BatchingOptions
from seqclf.system.state_validation import error_context, require


class PlanSampler(DistributedSampler):
    """Yields the row indices (B,) of each batch of an epoch, from the batch `first` on.

    `plan`: arguments of `plan_batches` without `epoch`, which Lightning sets by `set_epoch`. Lightning would divide the
    batches of a sampler that is not distributed among the ranks again.

    >>> limits = {"max_tokens": 12, "max_sequences": None, "pool_batches": 1, "seed": 0}
    >>> sampler = PlanSampler(np.array([5, 1, 6, 2, 3, 4]), **limits)
    >>> sampler.set_epoch(1)
    >>> batches = [rows.tolist() for rows in sampler]
    >>> sorted(sum(batches, []))
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, lengths: np.ndarray, **plan: Any):
        lengths = np.asarray(lengths)
        world_size, rank = plan.get("world_size", 1), plan.get("rank", 0)
        super().__init__(lengths, num_replicas=world_size, rank=rank, seed=plan["seed"])  # type: ignore[arg-type]
        self.lengths = lengths
        self.plan = plan
        self.first = 0
        self._plan_epoch(0)
        # Mean rows per batch of epoch 0: a constant divisor gives the loss of a row the same weight at every step.
        self.mean_rows = len(self.lengths) / max(1, len(self.batches) * world_size)

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._plan_epoch(epoch)

    def _plan_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches = plan_batches(self.lengths, epoch=epoch, **self.plan)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.batches[self.first :])

    def __len__(self) -> int:
        return len(self.batches)  # all of them, because Lightning counts a resumed epoch from its start


class FixedSampler(PlanSampler, SequentialSampler):  # type: ignore[misc]
    """Yields the batches of epoch 0 in every epoch. `overfit_batches` replaces samplers that are not sequential."""

    def set_epoch(self, epoch: int) -> None:
        pass


class TrainingLoader(DataLoader):
    """Yields the batches of an epoch from the one on that `first_batch` returns at its start, as after resuming.

    `threaded`: True to prefetch in a thread. `counts_epochs`: True without a Trainer, which counts epochs itself.
    """

    sampler: PlanSampler

    def __init__(
        self, *arguments: Any, first_batch: Callable[[], int], threaded: bool, counts_epochs: bool, **options: Any
    ):
        super().__init__(*arguments, **options)
        self.counts_epochs = counts_epochs
        self.first_batch = first_batch
        self.threaded = threaded

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # A generator starts at the first read, and Lightning restores progress between that and the call.
        self.sampler.first = self.first_batch()
        batches = super().__iter__()
        try:
            yield from prefetched(batches) if self.threaded else batches
        finally:
            if self.counts_epochs:
                self.sampler.set_epoch(self.sampler.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return {}: the trainer stores the position, but Lightning resumes only loaders with this method."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class SequenceDataModule(pl.LightningDataModule):
    """Loaders for the splits of a dataset. Training batches are shuffled, evaluation batches larger and sorted.

    `splits`: dict name → split. `seed`: seed of the row order. `settings`: single batching options, which override
    those of `batching`. Any Lightning Trainer can use the data module::

        trainer = pl.Trainer(max_epochs=3, callbacks=[EarlyStopping("validation/recall", mode="max")])
        trainer.fit(task, datamodule=SequenceDataModule(dataset.splits, max_tokens=8192))

    `Trainer.fit` reads `train`, and `validation` if it exists, `Trainer.test` reads `test`, and `Trainer.predict` the
    first existing split among `predict`, `test` and `validation`.
    """

    trainer: Any  # None without a Trainer; typed Any, because Lightning does not declare all attributes of a Trainer

    def __init__(
        self,
        splits: dict[str, Split],
        batching: BatchingOptions | None = None,
        *,
        seed: int | None = None,
        **settings: Any,
    ):
        super().__init__()
        if not isinstance(splits, Mapping):
            raise InputError("splits", f"is of type {type(splits).__name__}", "give Dataset.splits")
        given = {} if batching is None else dict(batching)
        self.splits = splits
        self.seed: int = default_settings("seed") if seed is None else seed
        self.resumed_ranks: int | None = None  # number of ranks that the resumed checkpoint was planned for
        self.batching = parse_options(BatchingOptions, {**given, **settings}, "batching")
        self.training: TrainingLoader | None = None
        self.validation: DataLoader | None = None
        self.features: Any = None  # outputs of frozen parts for training rows (see `feature_cache`)

    def __getstate__(self) -> dict[str, Any]:
        # without loaders, which read the position in the epoch from the original module
        return {**self.__dict__, "training": None, "validation": None, "features": None}

    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Add what the network keeps of the rows of a training batch."""
        if self.features is None or not self.trainer.training:
            return batch
        outputs = self.features.batch(batch.ids, next(iter(batch.fields.values())).shape[1])
        kept = {name: values.to(batch.lengths.device) for name, values in outputs.items()}
        return batch._replace(fields={**batch.fields, **kept})

    def setup(self, stage: str) -> None:
        """Drop the loaders of an earlier trainer, because they depend on the ranks and the device of that trainer."""
        self.training = self.validation = None
        if stage == "fit":
            self.resumed_ranks = None  # Lightning loads the state of a checkpoint after `setup`
            if self.trainer is not None:
                # Lightning counts batches when it requests the loader, and would cut every epoch to those of the first.
                self.trainer.reload_dataloaders_every_n_epochs = 1

    def train_dataloader(self) -> DataLoader:
        """Return the training loader, the same for all epochs, so that its worker processes keep running."""
        if self.training is None:
            data = self._split("train")
            plan = {key: getattr(self.batching, key) for key in PLAN_KEYS}
            sampler_class = FixedSampler if self.trainer is not None and self.trainer.overfit_batches else PlanSampler
            ranks = {"ranks": self.planned_ranks, **self._ranks()}
            sampler = sampler_class(data.sequences.lengths, **plan, labels=data.labels, seed=self.seed, **ranks)
            self.training = TrainingLoader(
                BatchDataset(data, sampler.mean_rows if self.batching.equal_row_weights else None),
                sampler=sampler,
                first_batch=_weak_call(self._first_batch, otherwise=0),
                threaded=self._threaded(),
                counts_epochs=self.trainer is None,
                **self._options(),
            )
        if self.trainer is not None:
            self.training.sampler.set_epoch(self.trainer.current_epoch)
        return self.training

    def val_dataloader(self) -> DataLoader | list[DataLoader]:
        """Return the validation loader, the same for all epochs, or [] if there is no validation split."""
        if "validation" not in self.splits:
            return []
        if self.validation is None:
            self.validation = self._sorted("validation", self._ranks())
        return self.validation

    def test_dataloader(self) -> DataLoader:
        return self._sorted("test", self._ranks())

    def predict_dataloader(self) -> DataLoader:
        split = next((name for name in ("predict", "test", "validation") if name in self.splits), "predict")
        return self._sorted(split, self._ranks())

    def evaluation_loader(self, split: str) -> DataLoader:
        """Return a loader that reads every row of a split exactly once in this process, for any number of ranks."""
        return self._sorted(split, {})

    def state_dict(self) -> dict[str, Any]:
        """Return the settings and the position inside the epoch for a checkpoint (see `resume_settings`)."""
        return {"settings": {**self.settings(), RANKS: self.planned_ranks}, "trained": self._batches_trained()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.trainer is None or self.trainer.state.fn != TrainerFn.FITTING:
            return
        origin = f"checkpoint={self.trainer.ckpt_path}"
        with error_context(origin, "it is damaged or of another version; train from the start"):
            require(state_dict, POSITION)
        self.resumed_ranks = state_dict["settings"][RANKS]
        if changed := check_same_batches(origin, state_dict, self.settings()):
            rank_zero_warn(f"{origin}: its epochs were batched with {' '.join(changed)}, the next ones are not")

    @property
    def planned_ranks(self) -> int:
        """Number of ranks for which each step is planned: `batching.ranks`, or as in the checkpoint, or all."""
        return self.batching.ranks or self.resumed_ranks or self._ranks().get("world_size", 1)

    def settings(self) -> dict[str, Any]:
        """Return dict config key → value, with every setting that changes the rows of a step or the weight of a row.

        `batching.ranks=null` is left out, because a resumed run takes the number from the checkpoint.
        """
        settings = {"seed": self.seed, **{f"batching.{key}": getattr(self.batching, key) for key in PLAN_KEYS}}
        settings["batching.equal_row_weights"] = self.batching.equal_row_weights
        if self.batching.ranks is not None:
            settings[RANKS] = self.batching.ranks
        if self.trainer is not None:
            settings |= {
                "trainer.accumulate_grad_batches": self.trainer.accumulate_grad_batches,
                # As text, because 1 means one batch and 1.0 all.
                "trainer.limit_train_batches": str(self.trainer.limit_train_batches),
                "trainer.overfit_batches": str(self.trainer.overfit_batches),
            }
        return settings

    def _split(self, name: str) -> Split:
        if name not in self.splits:
            raise InputError("splits", f"there is no {name} split, only {', '.join(self.splits)}", "add it")
        return self.splits[name]

    def _threaded(self) -> bool:
        """On the CPU, a prefetching thread takes more time from the training than it saves."""
        if self.batching.num_workers or self.trainer is None:
            return False
        return self.trainer.strategy.root_device.type != "cpu"

    def _ranks(self) -> dict[str, int]:
        if self.trainer is None:
            return {}
        return {"world_size": self.trainer.world_size, "rank": self.trainer.global_rank}

    def _first_batch(self) -> int:
        """Return the index of the first batch of the epoch that was not used for training, or 0 outside training."""
        if self.trainer is None or not self.trainer.training:
            return 0
        trained = self._batches_trained()
        # after the last batch that limit_train_batches allows, no batch is left
        return trained if trained < self.trainer.num_training_batches else len(self.train_dataloader())

    def _batches_trained(self) -> int:
        """Return the number of batches of the current epoch that were used for training, or 0 between epochs."""
        if self.trainer is None:
            return 0
        loop = self.trainer.fit_loop
        inside = loop.epoch_progress.current.processed < loop.epoch_progress.current.ready
        return loop.epoch_loop.batch_progress.current.processed if inside else 0

    def _sorted(self, split: str, ranks: dict[str, int]) -> DataLoader:
        data, max_sequences = self._split(split), self.batching.max_sequences
        sampler = FixedSampler(
            data.sequences.lengths,
            max_tokens=self.batching.max_tokens * self.batching.evaluation_factor,
            max_sequences=max_sequences and max_sequences * self.batching.evaluation_factor,
            # The first batches in sorted order would hold only the longest sequences.
            pool_batches=None if self._reads_all(split) else 1,
            seed=self.seed,
            **ranks,
        )
        return DataLoader(BatchDataset(data), sampler=sampler, **self._options())

    def _reads_all(self, split: str) -> bool:
        """Return True unless the trainer reads only some of the validation batches."""
        if split != "validation" or self.trainer is None:
            return True
        limit = self.trainer.limit_val_batches
        return limit == 0 or (isinstance(limit, float) and limit == 1.0)

    def _options(self) -> dict[str, Any]:
        return {
            "batch_size": None,
            "collate_fn": as_is,
            "pin_memory": torch.cuda.is_available(),
            "num_workers": self.batching.num_workers,
            "persistent_workers": self.batching.num_workers > 0,
            "worker_init_fn": _leave_process_group if self.batching.num_workers else None,
        }


def _weak_call(method: Callable[[], Any], otherwise: Any) -> Callable[[], Any]:
    """Return a function that calls `method`, or returns `otherwise` once its object is deleted.

    In a reference cycle, the queues of a loader would be closed before its workers end, each of which takes 5 seconds.
    """
    reference = weakref.WeakMethod(method)

    def call() -> Any:
        living = reference()
        return otherwise if living is None else living()

    return call


def _leave_process_group(worker: int) -> None:
    """Move a worker to its own process group, or a signal (Ctrl-C) ends it before training saves its last steps."""
    os.setpgrp()


def as_is(batch: Batch) -> Batch:
    """Return the batch unchanged, in place of PyTorch's collate function, which would make its arrays tensors."""
    return batch
