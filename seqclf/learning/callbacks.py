"""What happens around the epochs: checkpoints, stopping early, and the record of each epoch."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint

from seqclf.batching.datamodule import Batch
from seqclf.learning.scores import MAIN
from seqclf.learning.task import MONITORED

COLUMNS = ["epoch", "step", "seconds", "tokens_per_s", "lr"]
COLUMNS += [f"{split}/{name}" for split in ("train", "validation") for name in MAIN]


def checkpoints(folder: Path) -> list[ModelCheckpoint]:
    """`best.ckpt`, of the best epoch, and `last.ckpt`, of every epoch.

    Two callbacks, because Lightning's `save_last` saves only where the best is saved too.
    """
    common: dict[str, Any] = {"dirpath": folder, "save_on_train_epoch_end": True, "enable_version_counter": False}
    best = ModelCheckpoint(filename="best", monitor=MONITORED, mode="max", **common)
    return [best, ModelCheckpoint(filename="last", monitor=None, **common)]


def early_stopping(patience: int) -> EarlyStopping:
    """Stop after `patience` epochs without a better one."""
    return EarlyStopping(monitor=MONITORED, mode="max", patience=patience, check_on_train_epoch_end=True)


class EpochRecord(Checkpoint):
    """Keeps a row per epoch in `history` and in `metrics.csv`, and hands it to `show`.

    A resumed run keeps the rows of the epochs before it. A `Checkpoint`, because Lightning calls those after the
    module has logged its epoch, and all other callbacks before.
    """

    def __init__(self, path: Path, show: Callable[[dict[str, Any]], None]):
        self.path = path
        self.show = show
        self.history: list[dict[str, Any]] = []
        self.tokens = 0

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if self.path.is_file():
            with self.path.open(newline="") as file:
                rows = [row for row in csv.DictReader(file) if int(row["epoch"]) < trainer.current_epoch]
            self.history = [{name: float(value) for name, value in row.items() if value} for row in rows]

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.start, self.tokens = time.perf_counter(), 0

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self.tokens += int(batch.host_lengths.sum())

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.seconds = time.perf_counter() - getattr(self, "start", time.perf_counter())

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        seconds = getattr(self, "seconds", None) or time.perf_counter() - self.start
        row: dict[str, Any] = {
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "seconds": round(time.perf_counter() - self.start, 3),
            "tokens_per_s": round(self.tokens / max(seconds, 1e-9), 1),
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
        }
        row |= {name: metrics[name] for name in COLUMNS if name in metrics}
        self.history.append(row)
        if trainer.is_global_zero:
            self._write()
            self.show(row)

    def _write(self) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, restval="")
            writer.writeheader()
            writer.writerows({**row, "epoch": int(row["epoch"]), "step": int(row["step"])} for row in self.history)
