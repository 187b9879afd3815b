"""Batches of each split as a Lightning DataModule."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from seqclf.batching.collate import pad
from seqclf.batching.options import BatchingOptions
from seqclf.batching.plan import plan_arguments, round_up
from seqclf.batching.resume_settings import MAX_TOKENS, PLAN_KEYS, RANKS, check_same_batches, planned_ranks
from seqclf.batching.sampler import FixedSampler, PlanSampler, TrainingLoader
from seqclf.batching.steps import Limits
from seqclf.batching.token_budget import AUTO, search_budget, unlimited_budget
from seqclf.config.defaults import default_settings
from seqclf.config.options import parse_options
from seqclf.data.storage.store import Split, release_pages, size_in_bytes
from seqclf.documents.terminal import console
from seqclf.errors import InputError

RESIDENT_BYTES = 256 * 2**20  # splits up to this size may stay in memory
RESIDENT_ROWS = 1024  # rows of a larger split to read before its pages are given back


class Batch(NamedTuple):
    """Right-padded sequences. A NamedTuple, so that PyTorch pins it field by field.

    `fields[name]`: (B, T) int64 or (B, T, D) float32. `lengths`: (B,) int64, each in [1, T]. `labels`: (B,) int64.
    `host_lengths` and `ids` (row indices in the split): (B,) NumPy arrays, which stay on the host. `weight`: factor of
    the batch's mean loss, its rows over the mean rows of a batch, or 1. The weight is 0 for a rank without rows at a
    step: its batch then holds one row that counts nowhere.
    """

    fields: dict[str, Tensor]
    lengths: Tensor
    labels: Tensor
    host_lengths: np.ndarray
    ids: np.ndarray
    weight: float = 1.0

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch with its tensors on a device. A batch that is there already is returned itself.

        Lightning calls this method instead of walking through the fields, which takes 0.1 ms a step on the CPU.
        """
        device = torch.device(device)
        if self.lengths.device == device:
            return self
        # From pinned memory, a copy to a GPU runs beside the host's work. Lightning waits for these devices too.
        beside = device.type not in ("cpu", "mps")
        fields = {name: values.to(device, non_blocking=beside) for name, values in self.fields.items()}
        lengths, labels = (values.to(device, non_blocking=beside) for values in (self.lengths, self.labels))
        return self._replace(fields=fields, lengths=lengths, labels=labels)


class BatchDataset(Dataset):
    """Returns a padded batch for an array of row indices.

    `edges`: bucket boundaries that the longest length is rounded up to. `mean_rows`: mean number of rows of a training
    batch, the divisor of `Batch.weight`. None gives every batch the weight 1.

    The pages of a split larger than `RESIDENT_BYTES` are given back now and then, so that memory stays flat: every row
    that is read makes the system map some 64 kB around it.
    """

    def __init__(self, split: Split, edges: np.ndarray | None = None, mean_rows: float | None = None):
        self.split = split
        self.edges = edges
        self.mean_rows = mean_rows
        self.large = size_in_bytes(split.sequences) > RESIDENT_BYTES
        self.rows_read = 0

    def __getitem__(self, rows: np.ndarray) -> Batch:
        if not len(rows):  # all ranks compute a batch at each step, because they exchange gradients
            return self[np.array([self.split.sequences.lengths.argmin()])]._replace(weight=0.0)
        self.rows_read += len(rows)
        if self.large and self.rows_read > RESIDENT_ROWS:
            self.rows_read = 0
            release_pages(self.split.sequences)
        fields, lengths = pad(self.split.sequences, rows, self.edges)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        labels = torch.from_numpy(self.split.labels[rows])
        weight = 1.0 if self.mean_rows is None else len(rows) / self.mean_rows
        return Batch(tensors, torch.from_numpy(lengths), labels, lengths, rows, weight)


class SequenceDataModule(pl.LightningDataModule):
    """Loaders over the splits of a dataset: shuffled length buckets for training, sorted batches for evaluation.

    Evaluation batches hold `evaluation_factor` times the tokens and rows of training ones, as they keep no gradients.
    `batching`: options of all loaders, by default the values of conf/batching/token_budget.yaml, which explains them.
    `settings`: new values of single options. Any Trainer may use it::

        trainer = pl.Trainer(max_epochs=3, callbacks=[EarlyStopping("validation/recall", mode="max")])
        trainer.fit(task, datamodule=SequenceDataModule(dataset.splits, max_tokens=8192))

    `fit` reads the splits `train` and, if there is one, `validation`. `test` reads `test`. `predict` reads the first
    one that exists of `predict`, `test` and `validation`.
    """

    trainer: Any  # None outside of a Trainer; Lightning sets some of its attributes without declaring them

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
        seed = default_settings("seed") if seed is None else seed
        given = default_settings("batching") if batching is None else dict(batching)
        self.splits = splits
        self.seed: int = seed
        self.resumed_ranks: int | None = None  # planned ranks of the checkpoint that is resumed
        self.measured_tokens: int | None = None  # tokens that max_tokens=auto found, in this run or the resumed one
        self.batching = parse_options(BatchingOptions, {**given, **settings}, "batching")
        self.training: TrainingLoader | None = None
        self.validation: DataLoader | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its loaders anew, because a loader asks its module for the position in the epoch.
        return {**self.__dict__, "training": None, "validation": None}

    def setup(self, stage: str) -> None:
        """Drop earlier loaders, which were made for the ranks and the device of another trainer."""
        self.training = self.validation = None
        if stage == "fit":
            # Lightning loads the state of a checkpoint after this call.
            self.resumed_ranks = self.measured_tokens = None
        if stage == "fit" and self.trainer is not None:
            # Epochs have different numbers of batches. Lightning counts them only when it requests the loader, and the
            # count decides how many are read and when validation runs. Requested once, it would cut every epoch to the
            # count of the first.
            self.trainer.reload_dataloaders_every_n_epochs = 1

    def train_dataloader(self) -> DataLoader:
        """Return the same loader for all epochs, so that its workers stay. Lightning requests it before each epoch."""
        if self.training is None:
            data, plan = self._split("train"), self._training_plan()
            sampler_class = FixedSampler if self.trainer is not None and self.trainer.overfit_batches else PlanSampler
            ranks = {"ranks": self.planned_ranks, **self._ranks()}
            sampler = sampler_class(data.sequences.lengths, **plan, seed=self.seed, **ranks)
            self.training = TrainingLoader(
                BatchDataset(data, plan["edges"], sampler.mean_rows if self.batching.equal_row_weights else None),
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
        """Return the same loader for all epochs, or an empty list if there is no validation split."""
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
        """Return a loader of every row of a split exactly once, for this process alone."""
        return self._sorted(split, {})

    def state_dict(self) -> dict[str, Any]:
        """Return the settings and the position in the epoch for a checkpoint, see `resume_settings`."""
        return {"settings": {**self.settings(), RANKS: self.planned_ranks}, "trained": self._batches_trained()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.trainer is None or self.trainer.state.fn != TrainerFn.FITTING:
            return
        origin = f"checkpoint={self.trainer.ckpt_path}"
        self.resumed_ranks = planned_ranks(state_dict)
        if self.batching.max_tokens == AUTO:
            self.measured_tokens = state_dict.get("settings", {}).get(MAX_TOKENS)
        changed = check_same_batches(origin, state_dict, self.settings())
        if changed:
            rank_zero_warn(f"{origin}: its epochs were batched with {' '.join(changed)}, the next ones are not")

    @property
    def planned_ranks(self) -> int:
        """Number of ranks that a step is planned for: the setting, else as in the resumed run, else those present."""
        return self.batching.ranks or self.resumed_ranks or self._ranks().get("world_size", 1)

    def settings(self) -> dict[str, Any]:
        """Return the settings that decide the rows of each step and their weights, by the key that a user types.

        `batching.ranks=null` and `batching.max_tokens=auto` are left out, because a resumed run then takes the number
        from the checkpoint. The measured number stands for `auto`.
        """
        settings = {"seed": self.seed, **{f"batching.{key}": getattr(self.batching, key) for key in PLAN_KEYS}}
        if self.measured_tokens is not None:
            settings[MAX_TOKENS] = self.measured_tokens
        elif settings[MAX_TOKENS] == AUTO:
            del settings[MAX_TOKENS]
        settings["batching.equal_row_weights"] = self.batching.equal_row_weights
        if self.batching.ranks is not None:
            settings[RANKS] = self.batching.ranks
        if self.trainer is not None:
            settings |= {
                "trainer.accumulate_grad_batches": self.trainer.accumulate_grad_batches,
                # As text, because 1 is one batch and 1.0 all of them.
                "trainer.limit_train_batches": str(self.trainer.limit_train_batches),
                "trainer.overfit_batches": str(self.trainer.overfit_batches),
            }
        return settings

    def max_tokens(self) -> int:
        """Return the tokens of a training batch. For `auto`, a training measures them, and rows alone limit others."""
        given = self.batching.max_tokens
        return given if isinstance(given, int) else self._training_plan()["max_tokens"]

    def _training_plan(self) -> dict[str, Any]:
        """Return the arguments of `plan_batches` for training, but seed, epoch and ranks."""
        data = self._split("train")
        plan = plan_arguments(self.batching, data.sequences.lengths, data.labels)
        if self.batching.max_tokens == AUTO:
            trains = self.trainer is not None and self.trainer.state.fn == TrainerFn.FITTING
            if self.measured_tokens is None and trains:
                self.measured_tokens = self._measure_tokens(data, plan)
            plan["max_tokens"] = self.measured_tokens or plan["max_tokens"]
        return plan

    def _measure_tokens(self, data: Split, plan: Mapping[str, Any]) -> int:
        """Return the largest budget whose heaviest batch fits the memory of every rank."""
        if not hasattr(self.trainer.lightning_module, "step_memory"):
            module = type(self.trainer.lightning_module).__name__
            raise InputError(f"{MAX_TOKENS}={AUTO}", f"{module} does not measure its memory", "give a number")
        if self.planned_ranks > self.trainer.world_size:  # several batches of the plan are one here, with more padding
            raise InputError(
                f"{MAX_TOKENS}={AUTO}",
                f"cannot measure batches planned for {self.planned_ranks} ranks on {self.trainer.world_size}",
                "give a number, or set batching.ranks=null",
            )
        memory, batches = self.trainer.lightning_module.step_memory(), BatchDataset(data, plan["edges"])
        lengths = data.sequences.lengths
        costs = lengths if plan["edges"] is None else round_up(lengths, plan["edges"])
        limits = Limits(plan["max_tokens"], plan["max_sequences"], plan["multiple_of"], plan["overhead"])
        found = search_budget(costs, limits, lambda rows: memory(batches[rows]), memory.free)
        lowest = self.trainer.strategy.reduce(torch.tensor(found.tokens, device=memory.device), reduce_op="min")
        if self.trainer.is_global_zero:
            console.print(
                f"batching.max_tokens=auto: {int(lowest):,} tokens; the heaviest step takes "
                f"{found.needed / 1e9:.2f} of {found.free / 1e9:.2f} GB that are free",
                soft_wrap=True,
            )
        return int(lowest)

    def _split(self, name: str) -> Split:
        if name not in self.splits:
            raise InputError("splits", f"there is no {name} split, only {', '.join(self.splits)}", "add it")
        return self.splits[name]

    def _threaded(self) -> bool:
        """Return True if a thread gathers batches ahead, which pays off only where another device trains.

        Where the CPU trains, the thread takes a core from it for longer than it saves.
        """
        if self.batching.num_workers or self.trainer is None:
            return False
        return self.trainer.strategy.root_device.type != "cpu"

    def _ranks(self) -> dict[str, int]:
        if self.trainer is None:
            return {}
        return {"world_size": self.trainer.world_size, "rank": self.trainer.global_rank}

    def _first_batch(self) -> int:
        """Return the index of the first batch of the epoch that was not trained on, 0 outside of training."""
        if self.trainer is None or not self.trainer.training:
            return 0
        trained = self._batches_trained()
        # Resumed after the last batch that limit_train_batches allows, an epoch has none left.
        return trained if trained < self.trainer.num_training_batches else len(self.train_dataloader())

    def _batches_trained(self) -> int:
        """Return the number of batches of the running epoch that were trained on, 0 between epochs."""
        if self.trainer is None:
            return 0
        loop = self.trainer.fit_loop
        inside = loop.epoch_progress.current.processed < loop.epoch_progress.current.ready
        return loop.epoch_loop.batch_progress.current.processed if inside else 0

    def _sorted(self, split: str, ranks: dict[str, int]) -> DataLoader:
        data, max_sequences = self._split(split), self.batching.max_sequences
        sampler = FixedSampler(
            data.sequences.lengths,
            max_tokens=self._evaluation_tokens(data),
            max_sequences=max_sequences and max_sequences * self.batching.evaluation_factor,
            # A validation that is limited to some batches needs random rows in each of them: sorted, it would see the
            # longest sequences alone.
            pool_batches=None if self._reads_all(split) else 1,
            seed=self.seed,
            **ranks,
        )
        return DataLoader(BatchDataset(data), sampler=sampler, **self._options())

    def _evaluation_tokens(self, split: Split) -> int:
        """Return the tokens of an evaluation batch. Without training rows, `auto` is limited by rows alone."""
        if self.batching.max_tokens == AUTO and "train" not in self.splits:
            tokens = unlimited_budget(self.batching.max_sequences, split.sequences.lengths)
        else:
            tokens = self.max_tokens()
        return tokens * self.batching.evaluation_factor

    def _reads_all(self, split: str) -> bool:
        """Return True unless the trainer limits the batches of a validation."""
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
    """Return a function that calls a method while its object exists, and returns `otherwise` after that.

    A loader that holds its module is part of a reference cycle. The garbage collector ends the queues of such a loader
    before its processes, and then waits five seconds for each of them.
    """
    reference = weakref.WeakMethod(method)

    def call() -> Any:
        living = reference()
        return otherwise if living is None else living()

    return call


def _leave_process_group(worker: int) -> None:
    """Move a loader process to its own process group.

    A signal to the group (Ctrl-C, `timeout`, a shell) would end the loader processes first, and the training process
    could not save its last steps. A worker still ends with its parent.
    """
    os.setpgrp()


def as_is(batch: Batch) -> Batch:
    """Return the batch unchanged.

    PyTorch's default collate function would turn the arrays that stay on the host into tensors, which then move to the
    device.
    """
    return batch
