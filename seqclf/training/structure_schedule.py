"""Callback that changes the structure of the network at the start of epochs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn

from seqclf.batching.datamodule import Batch
from seqclf.config.targets import Config, is_foreign, targets
from seqclf.errors import InputError
from seqclf.models.ensemble import build_classifier
from seqclf.models.structure.options import ScheduledChange, read_schedule
from seqclf.training.change_structure import apply_change
from seqclf.training.module import SequenceTask


class StructureSchedule(Callback):
    """Changes the network of a `SequenceTask` by a schedule, before the first step of an epoch.

    `entries`: `{epoch: N, KEY: VALUE}` each, as the key `structure` of a config (see `seqclf.change_structure`). Epochs
    count from 1. `epoch_note`: the changes of the running epoch, for its record. Callbacks with a method
    `on_structure_change(trainer, task)` are called after a change. In any Trainer of one device::

        schedule = StructureSchedule([{"epoch": 3, "layers": 2}])
        pl.Trainer(max_epochs=5, callbacks=[schedule]).fit(task, datamodule=batches)
    """

    def __init__(self, entries: Sequence[Config]):
        self.changes = read_schedule(entries)
        self.epoch = 0  # the last epoch whose changes were made
        self.epoch_note = ""

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "note": self.epoch_note}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch, self.epoch_note = state_dict["epoch"], state_dict["note"]

    def check(self, task: SequenceTask) -> None:
        """Raise InputError for a change that cannot be made. All of them are tried on a network without memory."""
        if not self.changes:
            return
        dataset, model = task.hparams["dataset"], task.hparams["model"]
        # A network of another package may need its weights when it is made.
        foreign = any(is_foreign(target) for _, target in targets(model, "model"))
        with torch.random.fork_rng(devices=[]), nullcontext() if foreign else torch.device("meta"):
            network = build_classifier(model, dataset["fields"], len(dataset["classes"]))
        trial = _Trial(network, {name: task.hparams[name] for name in ("dataset", "model", "frozen")})
        for key, _, change in self.changes:
            apply_change(trial, None, change, key, seed=0)  # type: ignore[arg-type]

    def advance(self, task: SequenceTask, epoch: int) -> None:
        """Make the changes up to an epoch on a task that then takes the weights of a checkpoint of that epoch."""
        for key, start, change in self.changes:
            if start <= epoch:
                apply_change(task, None, change, key, seed=0)
        self.epoch = epoch

    def setup(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        self.check_trainer(trainer)
        task.changes_structure = True

    def check_trainer(self, trainer: pl.Trainer) -> None:
        """Raise InputError for what would have to take over the new weights: other devices, and averages of weights."""
        if self.changes and not isinstance(trainer.strategy, SingleDeviceStrategy):
            raise InputError(
                "structure",
                "changes a model on one device only",
                "set trainer.devices=1 trainer.strategy=auto, or remove structure",
            )
        averages = (WeightAveraging, StochasticWeightAveraging)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, averages) and any(change.change.of_model() for change in self.changes):
                raise InputError(
                    "structure",
                    f"{type(callback).__name__} of trainer.callbacks averages the weights of one structure",
                    "remove it, or structure",
                )

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Batch, batch_idx: int) -> None:
        # Not at the start of the epoch, which has no batch to see by how much the logits move.
        epoch = trainer.current_epoch + 1
        if epoch == self.epoch:
            return
        self.epoch = epoch
        due = [change for change in self.changes if change.epoch == epoch]
        self.epoch_note = "; ".join(self._make(trainer, task, batch, change) for change in due)
        if due:
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                if hasattr(callback, "on_structure_change"):
                    callback.on_structure_change(trainer, task)

    def _make(self, trainer: Any, task: SequenceTask, batch: Batch, scheduled: ScheduledChange) -> str:
        """Make a change, and return a note on it."""
        # The same in a run that is resumed, and another one for each change.
        seed = (task.seed << 32) + self.changes.index(scheduled)
        key, _, change = scheduled
        before = _logits(task, batch) if change.of_model() else None
        made = apply_change(task, trainer.optimizers[0], change, key, seed)
        if before is None:
            return made.text
        moved = float((_logits(task, batch) - before).abs().max())
        kind = "same function" if made.preserves else "another function"
        logits = f"logits moved by at most {moved:.2g}" if moved else "logits unchanged"
        return f"{made.text} ({made.weights:,} weights, {kind}: {logits})"


class _Trial(nn.Module):
    """A network and its hyperparameters, in the place of a task."""

    def __init__(self, network: nn.Module, hparams: dict[str, Any]):
        super().__init__()
        self.model = network
        self.hparams = hparams


@torch.no_grad()
def _logits(task: SequenceTask, batch: Batch) -> Tensor:
    """Return the logits of a batch in float64, without dropout and noise.

    In float32, rounding alone moves logits more than a change that leaves the function.
    """
    device = batch.lengths.device if batch.lengths.device.type != "mps" else torch.device("cpu")  # mps has no float64
    dataset = task.hparams["dataset"]
    with torch.random.fork_rng(devices=[]):
        # Not a deep copy, which would copy what the hooks of a debugger refer to.
        exact = build_classifier(task.hparams["model"], dataset["fields"], len(dataset["classes"]))
    exact.to(device).double().eval().load_state_dict(task.model.state_dict())
    fields = {
        name: values.to(device).double() if values.is_floating_point() else values.to(device)
        for name, values in batch.fields.items()
    }
    return exact(fields, batch.lengths.to(device), batch.host_lengths)
