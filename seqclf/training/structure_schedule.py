"""Callback that changes the structure of a network at the start of scheduled epochs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import SingleDeviceStrategy

from seqclf.config.build import Config, targets
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.models.change_network import freeze_weights
from seqclf.models.ensemble import build_classifier
from seqclf.settings.training import read_schedule
from seqclf.training.change_structure import apply_change, require_changeable
from seqclf.training.task import SequenceTask


class StructureSchedule(Callback):
    """Changes the network of a `SequenceTask` before the first step of each scheduled epoch, and prints each change.

    `entries`: list of dicts `{epoch: N, KEY: VALUE}` as in the config key `structure` (see `seqclf.change_structure`).
    Epochs are numbered from 1. The callback works in any Trainer with a single device::

        schedule = StructureSchedule([{"epoch": 3, "layers": 2}])
        pl.Trainer(max_epochs=5, callbacks=[schedule]).fit(task, datamodule=batches)
    """

    def __init__(self, entries: Sequence[Config]):
        self.changes = read_schedule(entries)
        self.resizes = any(change.of_model() for _, change in self.changes)
        self.epoch = 0  # number of the last epoch whose changes were made

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]

    def check(self, task: SequenceTask) -> None:
        """Raise InputError if a scheduled change cannot be made: all are tried on the meta device."""
        trial: Any = SimpleNamespace(
            model=copy.deepcopy(task.model).to("meta") if self.changes else None,
            hparams=dict(task.hparams),
            average=None,
        )
        for key, change in self.changes:
            apply_change(trial, None, change, key, seed=0)

    def advance(self, task: SequenceTask, epoch: int) -> None:
        """Make all changes up to `epoch`, so that the task can load the weights of a checkpoint of that epoch."""
        for key, change in self.changes:
            if change.epoch <= epoch:
                apply_change(task, None, change, key, seed=0)
        self.epoch = epoch

    def setup(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        self.check_trainer(trainer)
        task.on_load_checkpoint = partial(_take_structure, task)  # a checkpoint may hold another structure

    def check_trainer(self, trainer: pl.Trainer) -> None:
        """Raise InputError if the trainer keeps copies of the weights, as several devices and averaging do."""
        if self.changes and not isinstance(trainer.strategy, SingleDeviceStrategy):
            remedy = "set trainer.devices=1 trainer.strategy=auto, or remove structure"
            raise InputError("structure", "changes a model on one device only", remedy)
        averages = (WeightAveraging, StochasticWeightAveraging)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, averages) and self.resizes:
                problem = f"{type(callback).__name__} of trainer.callbacks averages the weights of one structure"
                raise InputError("structure", problem, "remove it, or structure")

    def on_train_start(self, trainer: pl.Trainer, task: Any) -> None:
        if self.resizes:
            require_changeable(trainer.optimizers[0])

    def on_train_batch_start(self, trainer: Any, task: Any, batch: Any, batch_idx: int) -> None:
        epoch = trainer.current_epoch + 1
        if epoch == self.epoch:
            return
        self.epoch = epoch
        for index, (key, change) in enumerate(self.changes):
            if change.epoch != epoch:
                continue
            # Each change has its own seed, which is the same in a resumed run.
            made = apply_change(task, trainer.optimizers[0], change, key, seed=(task.seed << 32) + index)
            function = "the same" if made.preserves else "another"
            size = f" ({made.weights:,} weights, {function} function)" if change.of_model() else ""
            console.print(f"epoch {epoch:>3}  {made.text}{size}", soft_wrap=True)


def _take_structure(task: SequenceTask, checkpoint: dict[str, Any]) -> None:
    """Replace the network of a task by a new one with the structure of a checkpoint, before its weights are loaded."""
    saved, held = checkpoint["hyper_parameters"], task.hparams
    # Build the network only if the checkpoint names the same classes, so that a checkpoint cannot run other code.
    if list(targets(saved["model"], "model")) == list(targets(held["model"], "model")):
        task.model = build_classifier(saved["model"], held["dataset"]["fields"], len(task.classes)).to(task.device)
        freeze_weights(task.model, saved["frozen"])
        held["model"], held["frozen"] = saved["model"], saved["frozen"]
