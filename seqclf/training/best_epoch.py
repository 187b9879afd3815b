"""Callbacks that keep the best epoch of a run and of each head, and end a training that no longer improves."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from seqclf.batching.batches import Batch
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.training.checkpoint import write_checkpoint
from seqclf.training.smoothed_monitor import MONITORED


class BestCheckpoint(ModelCheckpoint):
    """Callback that saves the checkpoint of the best epoch, or without a `monitor` of the last step.

    Without a `monitor`, each validation replaces the checkpoint, so that a killed run has one, and so does the end of
    the training. A run that is resumed (from `resumed`, which may have been moved since it was written) in another
    folder gets a copy of the best checkpoint there.
    """

    def __init__(self, resumed: Path | None, **options: Any):
        super().__init__(**options)
        self.resumed = resumed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if not state_dict["best_model_path"]:  # nothing is validated so far
            super().load_state_dict(state_dict)
            return
        saved = Path(state_dict["best_model_path"])
        target = Path(str(self.dirpath)) / saved.name
        places = [] if self.resumed is None else [self.resumed.parent.resolve() / saved.name]
        best = next((path for path in (*places, saved) if path.is_file()), None)
        if best is None:
            if self.monitor is not None:
                warnings.warn(f"{saved}: is missing; the best epoch is chosen among those to come", stacklevel=2)
            return
        _copy(best, target)
        scores = {} if self.monitor is None else {str(target): state_dict["best_model_score"]}
        paths = {"dirpath": self.dirpath, **dict.fromkeys(("best_model_path", "kth_best_model_path"), str(target))}
        super().load_state_dict({**state_dict, **paths, "best_k_models": scores})

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # A limit may end the training inside an epoch, or there may be no validation.
        if self.monitor is None:
            self.on_validation_end(trainer, pl_module)


class LastCheckpoint(ModelCheckpoint):
    """Callback that saves the latest checkpoint."""

    # In another folder, a resumed run forgets the files in its saved state, which must not be deleted.
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["dirpath"] != str(self.dirpath):
            no_paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), "")
            state_dict = {**state_dict, **no_paths, "dirpath": str(self.dirpath), "best_k_models": {}}
        super().load_state_dict(state_dict)


@rank_zero_only
def _copy(source: Path, target: Path) -> None:
    if source != target:
        write_checkpoint(target, source.read_bytes())


def checkpoints(
    folder: Path,
    every: int | None = None,
    resumed: Path | None = None,
    monitor: str | None = MONITORED,
    epochs: int = 1,
) -> list[ModelCheckpoint]:
    """Return callbacks that write `best.ckpt` after the best validation and `last.ckpt` after each `epochs` epochs.

    `every`: number of optimizer steps between additional writes of `last.ckpt`, None for none. `resumed`: the
    checkpoint file that the run resumes from. `monitor`: the logged value that chooses the best validation, None for
    the last step.
    """
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    # Save `best.ckpt` at the end of a validation, so that the file holds the validated weights.
    of_best: dict[str, Any] = {"filename": "best", "monitor": monitor, "mode": "max", "save_on_train_epoch_end": False}
    savers: list[ModelCheckpoint] = [BestCheckpoint(resumed, **of_best, **common)]
    # `last.ckpt` has its own callback, because Lightning's `save_last` saves only with the best checkpoint.
    common |= {"filename": "last", "monitor": None}
    savers.append(LastCheckpoint(every_n_epochs=epochs, save_on_train_epoch_end=True, **common))
    return savers if every is None else [*savers, LastCheckpoint(every_n_train_steps=every, save_top_k=1, **common)]


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Lightning's `EarlyStopping`, which here also stops a resumed run whose patience is used up.

    The class keeps the name of Lightning's class, under which a checkpoint stores the state of a callback.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= max(1, self.patience):
            trainer.should_stop = True


def early_stopping(patience: int) -> EarlyStopping:
    # The check runs at the end of each validation, because an epoch may have several or none.
    return EarlyStopping(MONITORED, mode="max", patience=patience, check_on_train_epoch_end=False)


# Factors of the logits of a head. Its loss is that at the best one, as the weights of the heads scale them anyway:
# growing confidence alone is no harm.
SCALES = tuple(2 ** (power / 4) for power in range(-8, 9))
# Lowest loss, its epoch, validations since then, and True once the training of the head has ended.
START = {"loss": math.inf, "epoch": 0, "waited": 0, "stopped": False}


class HeadStopping(Callback):
    """Stops a head of a network of several after `patience` validations in a row without a lower loss of its own.

    The loss of a head is that of its logits times the best of `SCALES`. The head keeps the weights of its best
    validation, averaged where weights are. The training ends once all heads that are trained have stopped.
    """

    def __init__(self, patience: int):
        self.patience = patience
        self.found: dict[str, dict[str, Any]] = {}  # dict name → `START` and `weights` of the best validation
        self.losses: dict[str, list[float]] = {}  # dict name → sums of losses, by scale
        self.heads: dict[str, Any] = {}
        self.outputs: dict[str, Tensor] = {}
        self.hooks: list[Any] = []
        self.rows = 0

    def state_dict(self) -> dict[str, Any]:
        return self.found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.found = state_dict

    def on_train_start(self, trainer: Any, task: Any) -> None:
        heads = getattr(task.model, "trained_heads", {})
        self.heads = heads if heads and len(task.model.names) > 1 else {}
        if self.heads and trainer.world_size > 1:
            show_note("head_patience: has no effect with ranks, in which each head trains to the end")
            self.heads = {}
        self.found = {name: self.found.get(name, dict(START)) for name in self.heads}
        for name, head in self.heads.items():
            head.is_stopped = self.found[name]["stopped"]
        self._stop_waiting(trainer, task, 0)  # a resumed run may have another patience
        if self.heads and not self._training() and self._has_to_go_on(trainer, 0):
            problem = "leaves epochs to train, and all heads have stopped"
            raise InputError("trainer.min_epochs", problem, "remove it, or set head_patience=null")

    def on_validation_start(self, trainer: Any, task: Any) -> None:
        self.rows, self.losses = 0, {name: [0.0] * len(SCALES) for name in self._training()}
        self.hooks = [
            self.heads[name].register_forward_hook(lambda *call, name=name: self.outputs.update({name: call[-1]}))
            for name in self.losses
        ]

    def on_validation_batch_end(self, trainer: Any, task: Any, outputs: Any, batch: Batch, *_: Any) -> None:
        if batch.weight:
            self.rows += len(batch.labels)
            for name, sums in self.losses.items():
                logits = self.outputs[name].float()
                added = torch.stack([task.loss(logits * scale, batch.labels) for scale in SCALES]).tolist()
                self.losses[name] = [total + more * len(batch.labels) for total, more in zip(sums, added, strict=True)]

    def on_validation_epoch_end(self, trainer: Any, task: Any) -> None:
        # Here the network still has the averaged weights, and callbacks have not written the checkpoint yet.
        for hook in self.hooks:
            hook.remove()
        if trainer.sanity_checking or not self.rows:
            return
        for name in self.losses:
            head, found, loss = self.heads[name], self.found[name], min(self.losses[name]) / self.rows
            if loss < found["loss"]:
                weights = {key: value.detach().clone() for key, value in head.state_dict().items()}
                found |= {"loss": loss, "epoch": trainer.current_epoch + 1, "waited": 0, "weights": weights}
            elif "weights" in found:  # else, no loss was finite so far
                found["waited"] += 1
        self._stop_waiting(trainer, task, 1)

    def _stop_waiting(self, trainer: Any, task: Any, ending: int) -> None:
        """Stop the heads that have waited, but not the last one before the least number of epochs and steps.

        `ending`: 1 at the end of an epoch, 0 before one.
        """
        for name in self._training():
            has_waited = "weights" in self.found[name] and self.found[name]["waited"] >= self.patience
            if has_waited and (len(self._training()) > 1 or not self._has_to_go_on(trainer, ending)):
                self._stop(trainer, task, name)
        if self.heads and not self._training():
            trainer.should_stop = True

    @staticmethod
    def _has_to_go_on(trainer: Any, ending: int) -> bool:
        epochs = trainer.current_epoch + ending
        return epochs < (trainer.min_epochs or 0) or trainer.global_step < (trainer.min_steps or 0)

    def _stop(self, trainer: Any, task: Any, name: str) -> None:
        head, found = self.heads[name], self.found[name]
        head.is_stopped = found["stopped"] = True
        head.load_state_dict(found["weights"])
        path = next(path for path, module in task.model.named_modules() if module is head)
        for key, value in found["weights"].items():
            if task.average is not None and f"{path}.{key}" in task.average.values:
                task.average.values[f"{path}.{key}"].copy_(value)
        for weight in head.parameters():
            weight.grad = None  # the optimizer passes over it
        if trainer.is_global_zero:
            console.print(f"{name}: stopped at epoch {trainer.current_epoch + 1}, best at epoch {found['epoch']}")

    def _training(self) -> list[str]:
        return [name for name, head in self.heads.items() if not head.is_stopped]
