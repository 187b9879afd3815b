"""Record of a training run with one row per epoch, for metrics.csv, the terminal, the report and the loggers."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Checkpoint

from seqclf.batching.datamodule import Batch
from seqclf.documents.formatting import shortened
from seqclf.documents.terminal import console
from seqclf.evaluation.alarms import find_alarms
from seqclf.evaluation.metrics import MAIN_METRICS, confusion_metrics, epoch_value, metric_title
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.smoothed_choice import smoothed_values, window_length
from seqclf.system.atomic_files import write_output
from seqclf.system.environment import resident_mb
from seqclf.system.json_result import JsonObject
from seqclf.training.epoch_metrics import EpochScores
from seqclf.training.module import named_scores

# Short notes on an epoch: alarms, trends, and whether the epoch is the best so far.

TREND = 3  # number of consecutive epochs that make a trend
OVERFITTING = "overfitting: validation loss rises while training loss falls"
NOTICEABLE = 0.001  # minimum change of a loss from one epoch of a trend to the next


def epoch_note(
    row: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    alarm: str | None,
    monitor: str | None,
    window: int = 1,
) -> str:
    """Return a short note on one epoch. `row`: the row of this epoch in metrics.csv.

    `earlier`: the rows of the earlier epochs. `alarm`: text of the most serious alarm about the validation scores of
    this epoch, or None. `monitor`: name of the validation metric that chooses the best epoch, None for the last step.
    `window`: number of validations whose mean chooses (see `smoothed_choice`).
    """
    if "validation/recall" not in row:
        return "not validated"
    if alarm is not None:
        return alarm  # a class that is never predicted matters more than any trend
    if monitor is None:
        return OVERFITTING if _overfits([*(epoch for epoch in earlier if "validation/loss" in epoch), row]) else ""
    name, sign = metric_title(monitor), -1 if monitor == "loss" else 1
    validated = [epoch for epoch in (*earlier, row) if epoch.get(f"validation/{monitor}") not in (None, "")]
    if not validated or validated[-1] is not row:
        return f"{name} is not defined on validation"
    past = validated[:-1]
    if not past:
        return "first epoch"
    values = [sign * float(epoch[f"validation/{monitor}"]) for epoch in validated]
    best = max(values[:-1])
    means = smoothed_values([_choice_value(epoch, monitor) for epoch in validated], window)
    is_chosen = means[-1] > max(means[:-1])  # the best checkpoint is now of this epoch
    if values[-1] > best:
        return f"best {name} so far" + ("" if is_chosen else f", but not in the mean of {window} validations")
    if is_chosen and window > 1:
        return f"best {name} so far in the mean of {window} validations"
    if is_chosen:
        return f"as good as the best {name}, at a lower loss"  # `epoch_value` also selects this epoch as the best
    if _overfits(validated):
        return OVERFITTING
    # `age`: number of epochs since the best mean was first reached, from which patience counts, too. A later epoch with
    # the same mean does not reset the count. With few validation rows, equal values are common, and every plateau would
    # otherwise be reported as "for 1 epoch".
    of_monitor = smoothed_values(values, window)
    first = validated[of_monitor.index(max(of_monitor[:-1]))]
    age = len(earlier) - next(place for place, epoch in enumerate(earlier) if epoch is first)
    of_means = f"in the mean of {window} validations, " if window > 1 else ""
    return f"{of_means}{name} no better for {age} epoch{'s' if age > 1 else ''}"


def _overfits(validated: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the validation loss rose and the training loss fell over the last validated epochs."""
    recent = validated[-TREND - 1 :]
    return len(recent) > TREND and _rises(recent, "validation/loss", 1) and _rises(recent, "train/loss", -1)


def _choice_value(row: Mapping[str, Any], monitor: str) -> float:
    return epoch_value({name: float(row[f"validation/{name}"]) for name in ("loss", monitor)}, monitor)


def _rises(rows: Sequence[Mapping[str, Any]], name: str, sign: int) -> bool:
    """Return True if a loss changes noticeably from each row to the next.

    `sign`: 1 for a rising loss, -1 for a falling loss.
    """
    values = [sign * float(row[name]) for row in rows]
    return all(later > earlier + NOTICEABLE for earlier, later in pairwise(values))


SCORES = [f"{split}/{name}" for split in ("train", "validation") for name in MAIN_METRICS]
SCORES += [f"validation/{name}" for name in RANKING_METRICS]
# Column names of metrics.csv, which are also the keys of the rows in a checkpoint.
COLUMNS = ["epoch", "step", "seconds", "step_ms", "tokens_per_s", "padding_efficiency", "memory_mb", "lr"]
COLUMNS += [*SCORES, "observation"]


class Speed(NamedTuple):
    """Training speed in one epoch. The time runs from the start of the epoch to the end of its last step.

    The time includes data loading but not validation. `step_ms`: milliseconds per batch. `tokens_per_s`: tokens per
    second, without padding. `padding_efficiency`: fraction of the tokens in the padded batches that are not padding.
    `memory_mb`: memory use in MB: of the GPU, or of the process if training runs on the CPU.
    """

    step_ms: float
    tokens_per_s: float
    padding_efficiency: float
    memory_mb: float


class EpochRow(NamedTuple):
    """Record of one epoch.

    `step`: number of optimizer steps until the end of the epoch. `lr`: learning rate at the end of the epoch. `scores`:
    dict `split/metric` → score; undefined scores are left out. `observation`: short note on the epoch.
    """

    epoch: int
    step: int
    seconds: float
    speed: Speed
    lr: float
    scores: dict[str, float]
    observation: str

    def to_dict(self) -> JsonObject:
        """Return the row as a dict column name → plain value. Undefined scores are left out."""
        fields = self._asdict()
        speed, scores = fields.pop("speed"), fields.pop("scores")
        values = {**fields, **speed._asdict(), **scores}
        return {name: values[name] for name in COLUMNS if name in values}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> EpochRow:
        """Build a row from the dict that `to_dict` returned."""
        return cls(
            row["epoch"],
            row["step"],
            row["seconds"],
            Speed(**{name: row[name] for name in Speed._fields}),
            row["lr"],
            {name: row[name] for name in SCORES if name in row},
            row["observation"],
        )


class Validation(NamedTuple):
    """Result of the last validation of an epoch.

    `scores`: dict `validation/metric` → score; undefined scores are left out. `alarm`: text of the most serious alarm
    about this validation, or None. `recall`: recall of the positive label. It is None if there is no positive label, or
    no validation row with this label.
    """

    scores: dict[str, float]
    alarm: str | None
    recall: float | None

    @classmethod
    def of(cls, result: EpochScores, classes: list[str], positive: str | None) -> Validation:
        assert result.confusion is not None, "validation counts a confusion matrix"
        metrics = confusion_metrics(result.confusion, classes)
        alarms = find_alarms(metrics, classes, positive)
        place = None if positive is None else classes.index(positive)
        recall = None if place is None or not result.support[place] else float(result.recall_by_class[place])
        return cls(named_scores("validation", result), alarms[0].text if alarms else None, recall)


class EpochRecord(Checkpoint):
    """Records one row per epoch, writes all rows to `path` (metrics.csv), and displays each row with `show`.

    `show`: function that displays a row; it is called as `show(row, monitor, positive)` after each epoch. An epoch
    between two validations (`trainer.check_val_every_n_epoch`) is only displayed if it has an observation. The argument
    `positive` is a tuple (positive label, validation recall of this label), or None without a positive label. The
    recall in the tuple may be None.

    `validation_losses`: dict number of optimizer steps → validation loss, including validations inside an epoch.
    Checkpoints store the rows, the validation losses and the last validation of the running epoch, so that a resumed
    run keeps them. The base class is `Checkpoint`, because Lightning calls other callbacks before the module has logged
    the scores of the epoch.
    """

    def __init__(self, path: Path, show: Callable[[EpochRow, str | None, tuple[str, float | None] | None], None]):
        self.path = path
        self.show = show
        self.rows: list[EpochRow] = []
        self.validation: Validation | None = None  # last validation of the running epoch
        self.validation_losses: dict[int, float] = {}
        self._start_clock({}, 0.0)

    @property
    def history(self) -> list[JsonObject]:
        """List of all rows, where each row is a dict column name → plain value."""
        return [row.to_dict() for row in self.rows]

    def state_dict(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "seen": dict(self.counts),
            "seconds": time.perf_counter() - self.start,
            "validation": None if self.validation is None else self.validation._asdict(),
            "validation_losses": dict(self.validation_losses),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = [EpochRow.from_dict(row) for row in state_dict["history"]]
        validation = state_dict["validation"]
        self.validation = None if validation is None else Validation(**validation)
        self.validation_losses = dict(state_dict["validation_losses"])
        self._start_clock(state_dict["seen"], state_dict["seconds"])

    def _start_clock(self, counts: dict[str, int], seconds: float) -> None:
        """Start the counters and the clock of an epoch.

        For an interrupted epoch, the counters and the clock continue from `counts` and `seconds`. `counts`: numbers of
        batches (`updates`), of tokens without padding (`tokens`) and of tokens with padding (`cells`). `seconds`: time
        that the epoch has taken so far.
        """
        self.counts = {"updates": 0, "tokens": 0, "cells": 0, **counts}
        self.start = time.perf_counter() - seconds
        self.last_step_end = time.perf_counter()

    def on_fit_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        # A resumed run may have another folder, where the file does not exist yet.
        if self.rows and trainer.is_global_zero:
            self._write()

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._start_clock({}, 0.0)

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Batch, batch_idx: int) -> None:
        longest = next(iter(batch.fields.values())).shape[1]
        self.counts["updates"] += 1
        self.counts["tokens"] += int(batch.host_lengths.sum())
        self.counts["cells"] += len(batch.host_lengths) * longest
        self.last_step_end = time.perf_counter()

    def on_validation_end(self, trainer: pl.Trainer, task: Any) -> None:
        if not trainer.sanity_checking:
            self.validation = Validation.of(task.epoch_scores["validation"], task.classes, task.positive)
            self.validation_losses[trainer.global_step] = self.validation.scores["validation/loss"]

    def on_train_epoch_end(self, trainer: pl.Trainer, task: Any) -> None:
        # Reset the validation, so that an epoch without validation does not repeat the scores of the previous epoch.
        validation, self.validation = self.validation, None
        scores = named_scores("train", task.epoch_scores["train"])
        if validation is not None:
            scores |= validation.scores
        row = EpochRow(
            epoch=trainer.current_epoch,
            step=trainer.global_step,
            seconds=round(time.perf_counter() - self.start, 3),
            speed=self._speed(task.device),
            lr=trainer.optimizers[0].param_groups[0]["lr"],
            scores=scores,
            observation="",
        )
        # Other callbacks, such as `StructureSchedule`, may have a note on changes at the start of the epoch.
        notes = [getattr(callback, "epoch_note", "") for callback in trainer.callbacks]  # type: ignore[attr-defined]
        alarm = None if validation is None else validation.alarm
        window = window_length(trainer.max_epochs, trainer.check_val_every_n_epoch)
        every = trainer.check_val_every_n_epoch or 1
        if is_due := (trainer.current_epoch + 1) % every == 0 or validation is not None:
            notes.append(epoch_note(row.to_dict(), self.history, alarm, task.monitor, window))
        self.rows.append(row._replace(observation="; ".join(filter(None, notes))))
        if trainer.is_global_zero:
            speed = {f"system/{name}": value for name, value in row.speed._asdict().items()}
            for logger in trainer.loggers:
                logger.log_metrics({**speed, "epoch": row.epoch}, row.step)
            # The file is written after every epoch, so that a killed run keeps its record.
            self._write()
            recall = None if validation is None else validation.recall
            if is_due or self.rows[-1].observation:
                self.show(self.rows[-1], task.monitor, None if task.positive is None else (task.positive, recall))

    def _speed(self, device: torch.device) -> Speed:
        # The measured time ends with the last training batch and excludes validation.
        seconds = max(self.last_step_end - self.start, 1e-9)
        memory = torch.cuda.max_memory_reserved(device) / 1e6 if device.type == "cuda" else resident_mb()
        return Speed(
            step_ms=round(1e3 * seconds / max(1, self.counts["updates"]), 3),
            tokens_per_s=round(self.counts["tokens"] / seconds, 1),
            padding_efficiency=round(self.counts["tokens"] / max(1, self.counts["cells"]), 4),
            memory_mb=round(memory, 1),
        )

    def _write(self) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(self.history)
        write_output(self.path, text.getvalue())


def show_epoch(row: EpochRow, monitor: str | None, positive: tuple[str, float | None] | None) -> None:
    """Print one line about an epoch in the terminal. Epochs are numbered from 1.

    `monitor`: name of the validation metric that chooses the best epoch, None for the last step. `positive`: tuple of
    the positive label and its validation recall, or None without a positive label.
    """
    scores = row.scores
    parts = [f"epoch {row.epoch + 1:>3}"]
    for split in ("train", "validation"):
        if f"{split}/loss" in scores:  # an epoch may have no validation
            parts.append(f"{split} loss {scores[f'{split}/loss']:.4f}  {_scores_text(split, ['recall'], scores)}")
    if "validation/accuracy" in scores:
        if positive is not None and positive[1] is not None:
            parts.append(f"{metric_title('recall', shortened(positive[0], 20))} {positive[1]:.4f}")
        names = [name for name in dict.fromkeys(["accuracy", monitor]) if name not in (None, "loss", "recall")]
        parts.append(_scores_text("validation", names, scores))
    parts.append(f"{row.speed.tokens_per_s:,.0f} tokens/s  {row.observation}")
    console.print("  ".join(parts), soft_wrap=True)


def _scores_text(split: str, names: Sequence[str], scores: Mapping[str, float]) -> str:
    """Return the scores `names` of a split as text. Undefined scores are left out."""
    values = {metric_title(name): scores.get(f"{split}/{name}") for name in names}
    return "  ".join(f"{title} {value:.4f}" for title, value in values.items() if value is not None)
