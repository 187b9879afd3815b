"""What happens around the epochs: checkpoints, stopping early, and the record of each epoch."""

from __future__ import annotations

import csv
import io
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

from seqclf.batching.datamodule import Batch
from seqclf.evaluation.epoch_notes import epoch_note
from seqclf.evaluation.metrics import MAIN_METRICS, ConfusionMetrics, confusion_metrics
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.system.atomic_files import write_output
from seqclf.system.memory import resident_mb
from seqclf.training.checkpoint_io import write_checkpoint
from seqclf.training.module import MONITORED, main_scores

SPEED = ["step_ms", "tokens_per_s", "padding_efficiency", "memory_mb"]
COLUMNS = ["epoch", "step", "seconds", *SPEED, "lr"]
COLUMNS += [f"{split}/{name}" for split in ("train", "validation") for name in MAIN_METRICS]
COLUMNS += [*(f"validation/{name}" for name in RANKING_METRICS), "observation"]


class CarriedCheckpoint(ModelCheckpoint):
    """A `ModelCheckpoint` that a run resumed in another folder carries on: what was best until then comes along.

    `resumed`: the checkpoint file that is gone on from; its folder may have been moved since it was written.
    """

    def __init__(self, resumed: Path | None, **options: Any):
        super().__init__(**options)
        self.resumed = resumed

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        before = Path(state_dict["best_model_path"])
        if self.resumed is not None and (self.resumed.parent / before.name).is_file():
            before = self.resumed.parent.resolve() / before.name
        here = str(Path(str(self.dirpath)) / before.name)
        if state_dict["best_model_path"] and not before.is_file():
            warnings.warn(f"{before}: is missing; the best epoch is chosen among those to come", stacklevel=2)
            return
        if before.is_file() and state_dict["best_model_path"] != here:
            _copy(before, Path(here))
            paths = {"dirpath": self.dirpath, "best_model_path": here, "kth_best_model_path": here}
            state_dict = {**state_dict, **paths, "best_k_models": {here: state_dict["best_model_score"]}}
        super().load_state_dict(state_dict)


class LastCheckpoint(ModelCheckpoint):
    """A `ModelCheckpoint` that in another folder starts anew: what it wrote before belongs to the run resumed from."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["dirpath"] != str(self.dirpath):
            no_paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), "")
            state_dict = {**state_dict, **no_paths, "dirpath": str(self.dirpath), "best_k_models": {}}
        super().load_state_dict(state_dict)


@rank_zero_only
def _copy(source: Path, target: Path) -> None:
    if source != target:
        write_checkpoint(target, source.read_bytes())


def checkpoints(folder: Path, every: int | None = None, resumed: Path | None = None) -> list[ModelCheckpoint]:
    """`best.ckpt`, of the best epoch, and `last.ckpt`, of every epoch and of each `every` steps inside one.

    Callbacks of their own, because Lightning's `save_last` saves only where the best is saved too.
    """
    common: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False}
    best = CarriedCheckpoint(
        resumed, filename="best", monitor=MONITORED, mode="max", save_on_train_epoch_end=True, **common
    )
    last = LastCheckpoint(filename="last", monitor=None, save_on_train_epoch_end=True, **common)
    if every is None:
        return [best, last]
    inside = LastCheckpoint(filename="last", monitor=None, every_n_train_steps=every, save_top_k=1, **common)
    return [best, last, inside]


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Stops training after `patience` validations without a better one, and does so again where a stopped run is
    resumed, unless its patience was raised. Named as Lightning's, since its state in a checkpoint goes by this name."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= max(1, self.patience):
            trainer.should_stop = True


def early_stopping(patience: int) -> EarlyStopping:
    """Stop after `patience` validations without a better one."""
    # Checked where a validation ends: an epoch may have none (trainer.check_val_every_n_epoch) or several.
    return EarlyStopping(MONITORED, mode="max", patience=patience, check_on_train_epoch_end=False)


class EpochRecord(Checkpoint):
    """Keeps a row per epoch in `history` and in `metrics.csv`, and hands it to `show`; its speed goes to the loggers.

    The rows travel in checkpoints, so a resumed run keeps those before it. A `Checkpoint`, because Lightning calls
    those after the module has logged its epoch, and all other callbacks before.
    """

    def __init__(self, path: Path, show: Callable[[dict[str, Any], str], None]):
        self.path = path
        self.show = show
        self.history: list[dict[str, Any]] = []
        self._begin({}, 0.0)

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.history, "seen": dict(self.seen), "seconds": time.perf_counter() - self.start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = state_dict["history"]
        self._begin(state_dict["seen"], state_dict["seconds"])

    def _begin(self, seen: dict[str, int], seconds: float) -> None:
        """Start to count an epoch, or go on where a run was broken off inside it. `seen`: updates, steps of sequences
        (`tokens`) and what was computed for them, padding included (`cells`)."""
        self.seen = {"updates": 0, "tokens": 0, "cells": 0, **seen}
        self.start = time.perf_counter() - seconds
        self.trained = time.perf_counter()

    def on_fit_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if self.history and trainer.is_global_zero:  # of a run resumed in another folder
            self._write()

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._begin({}, 0.0)

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        seen, width = self.seen, next(iter(batch.fields.values())).shape[1]
        seen["updates"] += 1
        seen["tokens"] += int(batch.host_lengths.sum())
        seen["cells"] += len(batch.host_lengths) * width
        self.trained = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Any) -> None:
        row: dict[str, Any] = {
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "seconds": round(time.perf_counter() - self.start, 3),
            **self._speed(task.device),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        for split, result in task.epoch_scores.items():
            row |= main_scores(split, result)
        row["observation"] = epoch_note(
            row, self.history, _validation_scores(task), task.classes, task.positive, task.monitor
        )
        task.epoch_scores = {}
        self.history.append(row)
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(
                    {f"system/{name}": row[name] for name in SPEED} | {"epoch": row["epoch"]}, row["step"]
                )
            self._write()
            self.show(row, task.monitor)

    def _speed(self, device: torch.device) -> dict[str, float]:
        """From the first update to the end of the last, loading included; validation is not."""
        seconds = max(self.trained - self.start, 1e-9)
        memory = torch.cuda.max_memory_reserved(device) / 1e6 if device.type == "cuda" else resident_mb()
        return {
            "step_ms": round(1e3 * seconds / max(1, self.seen["updates"]), 3),
            "tokens_per_s": round(self.seen["tokens"] / seconds, 1),
            "padding_efficiency": round(self.seen["tokens"] / max(1, self.seen["cells"]), 4),
            "memory_mb": round(memory, 1),
        }

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(self.history)
        write_output(self.path, text.getvalue())


def _validation_scores(task: Any) -> ConfusionMetrics | None:
    """Metrics of the validation's confusion matrix, for alarms. None if the epoch was not validated."""
    if "validation" not in task.epoch_scores:
        return None
    return confusion_metrics(task.epoch_scores["validation"].confusion, task.classes)
