"""Record of a training: progress, steps and epochs, for the terminal, metrics.csv, report and loggers."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from seqclf.batching.batches import Batch
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.evaluation.metrics import EPOCH_METRICS, MAIN_METRICS, metric_title
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonObject
from seqclf.system.resources import resident_mb
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, epoch_scores
from seqclf.training.smoothed_monitor import MONITORED

MAX_LOGGED_CLASSES = 50


class StepLog(Callback):
    """Logs the loss, gradient norm and learning rate of steps, and the scores of epochs, and weighs short steps.

    `self.log` is not used, because it takes a millisecond at every step, also at steps that are not logged.
    """

    def on_before_optimizer_step(self, trainer: Any, task: Any, optimizer: Any) -> None:
        # Lightning divides each loss by the full number, also for the fewer batches before the end of an epoch.
        every = trainer.accumulate_grad_batches
        if summed := (trainer.fit_loop.batch_idx + 1) % every:
            for weight in task.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(every / summed)
        step, every = task.global_step + 1, trainer.log_every_n_steps
        # The first step is logged too, because a short run may have no other logged step.
        if not trainer.loggers or not every or (step > 1 and step % every):
            return
        gradients = [weight.grad for weight in task.parameters() if weight.grad is not None]
        values = {
            "train/step_loss": float(task.step_loss),
            "train/gradient_norm": float(nn.utils.get_total_norm(gradients)),  # before clipping
            "lr": optimizer.param_groups[0]["lr"],
        }
        for logger in trainer.loggers:
            logger.log_metrics(values, step)


def finish_epoch(task: Any, split: str, metrics: EpochMetrics) -> None:
    """Log the scores of an epoch for the loggers, and for callbacks that monitor one, such as `validation/recall`.

    Raises InputError for a loss that is not finite.
    """
    result = task.epoch_scores[split] = epoch_scores(metrics)
    if not math.isfinite(result.scores["loss"]):
        remedy = f"lower optimizer.lr (now {task.optimizer['lr']}) or trainer.gradient_clip_val"
        raise InputError(None, f"the {split} loss of epoch {task.current_epoch + 1} is not finite", remedy)
    values = named_scores(split, result)
    if split != "train" and len(task.classes) <= MAX_LOGGED_CLASSES:
        by_class = zip(task.classes, result.recall_by_class.tolist(), result.support.tolist(), strict=True)
        values |= {f"{split}/recall/{label}": recall for label, recall, rows in by_class if rows}
    fitting = task.trainer.state.fn == TrainerFn.FITTING
    # `trainer.validate` and `trainer.test` return the logged values. During a fit, Lightning would log a step number
    # that is one too low, so the loggers are called here.
    task.log_dict(values, logger=not fitting)
    if fitting:
        for logger in task.trainer.loggers:
            logger.log_metrics({**values, "epoch": task.current_epoch}, task.global_step)
            logger.save()


def named_scores(split: str, result: EpochScores) -> dict[str, float]:
    """Return a dict `split/metric` → score without undefined scores, in the order of `EPOCH_METRICS`, own ones last."""
    names = dict.fromkeys((*EPOCH_METRICS, *result.scores))
    return {f"{split}/{name}": result.scores[name] for name in names if name in result.scores}


SCORES = [f"{split}/{name}" for split in ("train", "validation") for name in MAIN_METRICS]
SCORES += [f"validation/{name}" for name in RANKING_METRICS]
# Columns of metrics.csv, which metrics of one's own follow: also the keys of the rows in a checkpoint.
SPEED = ["step_ms", "tokens_per_s", "padding_efficiency", "memory_mb"]
COLUMNS = ["epoch", "step", "seconds", *SPEED, "lr", *SCORES]


class EpochRecord(Checkpoint):
    """Records one row per epoch, writes all rows to `path` (metrics.csv), and displays each row with `show`.

    `show(row, is_best)` is called after each epoch that was validated; `is_best` is True if the best checkpoint is now
    of this epoch. `history`: list of all rows, without undefined scores, which a resumed run keeps. The base class is
    `Checkpoint`, because Lightning calls other callbacks before the module has logged the scores of the epoch.
    """

    def __init__(self, path: Path, show: Callable[[JsonObject, bool], None]):
        self.path, self.show = path, show
        self.history: list[JsonObject] = []
        self.best: Tensor | None = None  # best monitored score before the epoch, or the part of it that was resumed
        self.validation: dict[str, float] | None = None  # scores of the last validation of the running epoch
        self._start_clock({}, 0.0)

    def state_dict(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self.start
        return {"history": [*self.history], "seen": {**self.counts}, "seconds": seconds, "validation": self.validation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])
        self.validation = state_dict["validation"]
        self._start_clock(state_dict["seen"], state_dict["seconds"])

    def _start_clock(self, counts: dict[str, int], seconds: float) -> None:
        """Continue the counters (batches `updates`, `tokens`, with padding `cells`) of an interrupted epoch."""
        self.counts = {"updates": 0, "tokens": 0, "cells": 0, **counts}
        self.start = time.perf_counter() - seconds
        self.last_step_end = time.perf_counter()

    def on_fit_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # A resumed run may have another folder, where the file does not exist yet.
        if self.history and trainer.is_global_zero:
            self._write()

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.best = _best_score(trainer)  # a run that is resumed inside an epoch does not start the epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.best = _best_score(trainer)
        self._start_clock({}, 0.0)

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        longest = next(iter(batch.fields.values())).shape[1]
        self.counts["updates"] += 1
        self.counts["tokens"] += int(batch.host_lengths.sum())
        self.counts["cells"] += len(batch.host_lengths) * longest
        self.last_step_end = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, task: Any) -> None:
        if not trainer.sanity_checking:
            self.validation = named_scores("validation", task.epoch_scores["validation"])

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Any) -> None:
        # Reset the validation, so that an epoch without validation does not repeat the scores of the previous epoch.
        validation, self.validation = self.validation, None
        speed = self._speed(task.device)
        values = {
            "epoch": trainer.current_epoch,
            "step": trainer.global_step,
            "seconds": round(time.perf_counter() - self.start, 3),
            **speed,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            **named_scores("train", task.epoch_scores["train"]),
            **(validation or {}),
        }
        row = {name: values[name] for name in dict.fromkeys((*COLUMNS, *values)) if name in values}
        self.history.append(row)
        if trainer.is_global_zero:
            of_system = {f"system/{name}": value for name, value in speed.items()}
            for logger in trainer.loggers:
                logger.log_metrics({**of_system, "epoch": row["epoch"]}, row["step"])
            # The file is written after every epoch, so that a killed run keeps its record.
            self._write()
            if validation is not None:
                self.show(row, _best_score(trainer) is not self.best)

    def _speed(self, device: torch.device) -> dict[str, float]:
        """Return `SPEED` from the start of the epoch to its last step, with data loading but without validation.

        Tokens per second do not count padding. Memory is that of the GPU, or of the process on the CPU.
        """
        seconds = max(self.last_step_end - self.start, 1e-9)
        memory = torch.cuda.max_memory_reserved(device) / 1e6 if device.type == "cuda" else resident_mb()
        step_ms = round(1e3 * seconds / max(1, self.counts["updates"]), 3)
        efficiency = round(self.counts["tokens"] / max(1, self.counts["cells"]), 4)
        values = (step_ms, round(self.counts["tokens"] / seconds, 1), efficiency, round(memory, 1))
        return dict(zip(SPEED, values, strict=True))

    def _write(self) -> None:
        text = io.StringIO()
        columns = dict.fromkeys((*COLUMNS, *(name for row in self.history for name in row)))
        writer = csv.DictWriter(text, columns, restval="")
        writer.writeheader()
        writer.writerows(self.history)
        write_output(self.path, text.getvalue())


def _best_score(trainer: pl.Trainer) -> Tensor | None:
    """Return the score of the best checkpoint, which is a new tensor after each better validation."""
    savers = [each for each in trainer.checkpoint_callbacks if isinstance(each, ModelCheckpoint)]
    return next((each.best_model_score for each in savers if each.monitor == MONITORED), None)


def show_epoch(row: JsonObject, is_best: bool) -> None:
    """Print one line about an epoch in the terminal. Epochs are numbered from 1."""
    parts = [f"epoch {row['epoch'] + 1:>3}"]
    for split in ("train", "validation"):
        parts.append(f"{split} loss {row[f'{split}/loss']:.4f}  {metric_title('recall')} {row[f'{split}/recall']:.4f}")
    parts.append(f"{row['tokens_per_s']:,.0f} tokens/s{'  best' if is_best else ''}")
    console.print("  ".join(parts), soft_wrap=True)


NOTE_INTERVAL_S = 1.0  # seconds between two updates of the displayed loss; each update waits for the GPU


class TrainingProgress(Callback):
    """Shows a progress line with the number of optimizer steps in all epochs, which are numbered from 1.

    The progress line is visible inside a block `with progress.shown()`, in which the trainer fits.
    """

    def __init__(self) -> None:
        self.stage = progress.Stage("training")  # placeholder that is not displayed; `shown()` replaces it
        self.first_step = 0
        self.noted = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        with progress.stage("training", unit="steps", summary=False) as self.stage:
            yield

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.first_step = trainer.global_step
        steps = trainer.estimated_stepping_batches
        self.stage.total = steps - self.first_step if math.isfinite(steps) else None

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        self._name_epoch(trainer)
        self.stage.completed = trainer.global_step - self.first_step
        now = time.monotonic()
        if now - self.noted > NOTE_INTERVAL_S:
            self.noted = now
            self.stage.note = f"loss {float(task.step_loss):.4f}"

    def on_validation_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._name_epoch(trainer, ", validation")

    def _name_epoch(self, trainer: pl.Trainer, part: str = "") -> None:
        of = f" of {trainer.max_epochs}" if trainer.max_epochs and trainer.max_epochs > 0 else ""
        self.stage.title = f"epoch {trainer.current_epoch + 1}{of}{part}"
