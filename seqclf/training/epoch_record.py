"""Record of the epochs of a run: one row each, for metrics.csv, the terminal, the report and the loggers."""

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
from seqclf.system.atomic_files import write_output
from seqclf.system.environment import resident_mb
from seqclf.system.json_result import JsonObject
from seqclf.training.epoch_metrics import EpochScores
from seqclf.training.module import named_scores

# Notes on an epoch in a few words: alarms, trends, and whether it is the best so far.

TREND = 3  # epochs in a row that make a trend
NOTICEABLE = 0.001  # change of a loss that counts


def epoch_note(
    row: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    alarm: str | None,
    monitor: str,
) -> str:
    """A note on the epoch `row` of metrics.csv.

    `earlier`: the rows before it. `alarm`: the gravest alarm about its validation. `monitor`: the validation metric
    that decides which epoch is best.
    """
    if "validation/recall" not in row:
        return "not validated"
    if alarm is not None:
        return alarm  # a class that is never predicted matters more than any trend
    name, sign = metric_title(monitor), -1 if monitor == "loss" else 1
    validated = [epoch for epoch in (*earlier, row) if epoch.get(f"validation/{monitor}") not in (None, "")]
    if not validated or validated[-1] is not row:
        return f"{name} is not defined on validation"
    past = validated[:-1]
    if not past:
        return "first epoch"
    values = [sign * float(epoch[f"validation/{monitor}"]) for epoch in validated]
    best = max(values[:-1])
    if values[-1] > best:
        return f"best {name} so far"
    choices = [_choice_value(epoch, monitor) for epoch in validated]
    if choices[-1] > max(choices[:-1]):
        return f"as good as the best {name}, at a lower loss"  # the best epoch so far, as `epoch_value` chooses it
    recent = [*past, row][-TREND - 1 :]
    if len(recent) > TREND and _rises(recent, "validation/loss", 1) and _rises(recent, "train/loss", -1):
        return "overfitting: validation loss rises while training loss falls"
    # Since the best value was first reached. A later epoch that ties with it does not make the count start anew: with
    # few validation rows ties are common, and every plateau would read "for 1 epoch".
    age = len(values) - 1 - values.index(best)
    return f"{name} no better for {age} epoch{'s' if age > 1 else ''}"


def _choice_value(row: Mapping[str, Any], monitor: str) -> float:
    return epoch_value({name: float(row[f"validation/{name}"]) for name in ("loss", monitor)}, monitor)


def _rises(rows: Sequence[Mapping[str, Any]], name: str, sign: int) -> bool:
    """Return True if a loss rises (`sign` 1) or falls (-1) noticeably from each row to the next."""
    values = [sign * float(row[name]) for row in rows]
    return all(later > earlier + NOTICEABLE for earlier, later in pairwise(values))


SCORES = [f"{split}/{name}" for split in ("train", "validation") for name in MAIN_METRICS]
SCORES += [f"validation/{name}" for name in RANKING_METRICS]
# Names of metrics.csv and of the rows in a checkpoint.
COLUMNS = ["epoch", "step", "seconds", "step_ms", "tokens_per_s", "padding_efficiency", "memory_mb", "lr"]
COLUMNS += [*SCORES, "observation"]


class Speed(NamedTuple):
    """Speed of training in one epoch, from its start to the end of its last step, loading included.

    `step_ms`: milliseconds per batch. `tokens_per_s`: real tokens per second. `padding_efficiency`: share of computed
    tokens that are real. `memory_mb`: of the GPU, or of the process on a CPU.
    """

    step_ms: float
    tokens_per_s: float
    padding_efficiency: float
    memory_mb: float


class EpochRow(NamedTuple):
    """Record of one epoch. `step`: optimizer steps so far. `lr`: learning rate at its end.

    `scores`: by `split/metric`, those that are defined. `observation`: the most notable fact, in a few words.
    """

    epoch: int
    step: int
    seconds: float
    speed: Speed
    lr: float
    scores: dict[str, float]
    observation: str

    def to_dict(self) -> JsonObject:
        """Return the row as plain values by `COLUMNS`, without scores that are not defined."""
        fields = self._asdict()
        speed, scores = fields.pop("speed"), fields.pop("scores")
        values = {**fields, **speed._asdict(), **scores}
        return {name: values[name] for name in COLUMNS if name in values}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> EpochRow:
        """Return the row that `to_dict` made plain."""
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
    """Result of the last validation in an epoch.

    `scores`: by `validation/metric`, those that are defined. `alarm`: the gravest alarm about it. `recall`: that of the
    positive label, None without one.
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
    """Keeps a row per epoch, writes them to `path` (metrics.csv) and passes each to `show(row, monitor, positive)`.

    `positive`: the positive label and its recall on validation, which may be None. None without a positive label.

    `validation_losses`: optimizer steps → loss of the validation after them, also inside an epoch. They, the rows, and
    the last validation of the running epoch travel in checkpoints, so a resumed run keeps them. It is a
    `Checkpoint` because Lightning calls those after the module has logged its epoch, and all other callbacks before.
    """

    def __init__(self, path: Path, show: Callable[[EpochRow, str, tuple[str, float | None] | None], None]):
        self.path = path
        self.show = show
        self.rows: list[EpochRow] = []
        self.validation: Validation | None = None  # the last one of the running epoch
        self.validation_losses: dict[int, float] = {}
        self._start_clock({}, 0.0)

    @property
    def history(self) -> list[JsonObject]:
        """Rows as plain values by column name."""
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
        validation = state_dict.get("validation")  # older checkpoints have none
        self.validation = None if validation is None else Validation(**validation)
        self.validation_losses = dict(state_dict.get("validation_losses", {}))
        self._start_clock(state_dict["seen"], state_dict["seconds"])

    def _start_clock(self, counts: dict[str, int], seconds: float) -> None:
        """Start the counts and the clock of an epoch, or continue those of an interrupted one.

        `counts`: batches (`updates`), real tokens, and computed tokens, padding included (`cells`).
        """
        self.counts = {"updates": 0, "tokens": 0, "cells": 0, **counts}
        self.start = time.perf_counter() - seconds
        self.last_step_end = time.perf_counter()

    def on_fit_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        if self.rows and trainer.is_global_zero:  # the run may be resumed in another folder
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
        # An epoch without validation must not repeat the scores of the one before.
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
        # Notes of other callbacks, on changes that were made at the start of the epoch.
        notes = [getattr(callback, "epoch_note", "") for callback in trainer.callbacks]  # type: ignore[attr-defined]
        note = epoch_note(row.to_dict(), self.history, None if validation is None else validation.alarm, task.monitor)
        self.rows.append(row._replace(observation="; ".join(filter(None, [*notes, note]))))
        if trainer.is_global_zero:
            speed = {f"system/{name}": value for name, value in row.speed._asdict().items()}
            for logger in trainer.loggers:
                logger.log_metrics({**speed, "epoch": row.epoch}, row.step)
            # After every epoch, so that a killed run keeps its record.
            self._write()
            recall = None if validation is None else validation.recall
            self.show(self.rows[-1], task.monitor, None if task.positive is None else (task.positive, recall))

    def _speed(self, device: torch.device) -> Speed:
        # Validation comes after the last step and does not count.
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


def show_epoch(row: EpochRow, monitor: str, positive: tuple[str, float | None] | None) -> None:
    """Print a line per epoch, counted from 1.

    `monitor`: the validation metric that decides which one is best. `positive`: the positive label and its recall on
    validation, None without one.
    """
    scores = row.scores
    parts = [f"epoch {row.epoch + 1:>3}"]
    for split in ("train", "validation"):
        if f"{split}/loss" in scores:  # an epoch may have no validation
            parts.append(f"{split} loss {scores[f'{split}/loss']:.4f}  {_scores_text(split, ['recall'], scores)}")
    if "validation/accuracy" in scores:
        if positive is not None and positive[1] is not None:
            parts.append(f"{metric_title('recall', shortened(positive[0], 20))} {positive[1]:.4f}")
        names = [name for name in dict.fromkeys(["accuracy", monitor]) if name not in ("loss", "recall")]
        parts.append(_scores_text("validation", names, scores))
    parts.append(f"{row.speed.tokens_per_s:,.0f} tokens/s  {row.observation}")
    console.print("  ".join(parts), soft_wrap=True)


def _scores_text(split: str, names: Sequence[str], scores: Mapping[str, float]) -> str:
    """The scores of a split that are defined."""
    values = {metric_title(name): scores.get(f"{split}/{name}") for name in names}
    return "  ".join(f"{title} {value:.4f}" for title, value in values.items() if value is not None)
