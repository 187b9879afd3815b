"""Training on one batch, again and again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, Dataset

from seqclf.batching.datamodule import Batch, SequenceDataModule, as_is
from seqclf.data.storage.ragged import Split
from seqclf.errors import InputError
from seqclf.training.debugging.contradictions import contradiction_text, contradictions, lowest_loss
from seqclf.training.debugging.overfit_verdict import OverfitRecord
from seqclf.training.debugging.regularisation import is_random, turn_off_dropout
from seqclf.training.debugging.row_names import row_name
from seqclf.training.module import SequenceTask

CONFIRMED = 3  # steps: with a learning rate that is too high, a loss may touch zero and leave it again


class RepeatedBatch(Dataset):
    """The same batch at each of `steps` positions."""

    def __init__(self, batch: Batch, steps: int):
        self.batch = batch
        self.steps = steps

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Batch:
        if step >= self.steps:
            raise IndexError(step)
        return self.batch


class LossCurve(Callback):
    """Keeps the loss of each step, and ends training once `CONFIRMED` in a row are at most `enough`."""

    def __init__(self, enough: float):
        self.enough = enough
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, *arguments: Any) -> None:
        self.losses.append(float(task.step_loss))
        if not math.isfinite(self.losses[-1]):
            step = len(self.losses)
            remedy = "lower optimizer.lr, or see debug=nan, which" if step > 1 else "debug=nan"
            raise InputError(
                None, f"the loss of the batch is {self.losses[-1]} at step {step}", f"{remedy} names the module"
            )
        last = self.losses[-CONFIRMED:]
        trainer.should_stop = len(last) == CONFIRMED and max(last) <= self.enough


def chosen_rows(batches: SequenceDataModule, labels: np.ndarray) -> np.ndarray:
    """Return the rows of the batch of the first epoch with the most labels, and of those with the most rows."""
    candidates: Sequence[np.ndarray] = batches.train_dataloader().sampler.batches  # type: ignore[attr-defined]
    return max(candidates, key=lambda rows: (len(np.unique(labels[rows])), len(rows)))


def overfit(
    trainer: pl.Trainer, task: SequenceTask, batches: SequenceDataModule, curve: LossCurve, goal: float, steps: int
) -> OverfitRecord:
    """Train `task` on one batch for at most `steps` steps, and return what was measured.

    `trainer`: has `curve` among its callbacks, and no limit below `steps`. `goal`: loss above the lowest possible one.
    """
    split = batches.splits["train"]
    rows = chosen_rows(batches, split.labels)
    data: Any = batches.train_dataloader().dataset
    batch: Batch = data[rows]._replace(weight=1.0)
    groups = contradictions(split.sequences, split.labels, rows)
    floor = lowest_loss(task.loss, groups, split.labels, len(task.classes), len(rows))
    turn_off_dropout(task.model)
    random = is_random(task.train(), batch)
    before = {name: weight.detach().clone().cpu() for name, weight in task.model.named_parameters()}
    curve.enough = floor + goal
    repeated: Any = DataLoader(RepeatedBatch(batch, steps), batch_size=None, collate_fn=as_is)  # type: ignore[arg-type]
    trainer.fit(task, repeated, [])  # without loaders for validation, Lightning warns
    logits, last_loss = _evaluate(task, batch)
    predicted = logits.argmax(dim=-1).numpy()
    contradictory = np.concatenate(groups) if groups else np.empty(0, int)
    wrong = np.flatnonzero((predicted != split.labels[rows]) & ~np.isin(rows, contradictory))
    return OverfitRecord(
        losses=curve.losses,
        goal=goal,
        floor=floor,
        last_loss=last_loss,
        rows=len(rows),
        labels=len(np.unique(split.labels[rows])),
        wrong=[_mistake(split, task.classes, rows[index], predicted[index]) for index in wrong],
        unchanged=[name for name, weight in task.model.named_parameters() if torch.equal(before[name], weight.cpu())],
        weights=len(before),
        constant=len(rows) > 1 and bool((logits - logits[:1]).abs().max() < 1e-5) and not _all_equal(split, rows),
        random=random,
        learning_rate=float(task.optimizer["lr"]),
        contradictions=contradiction_text(groups, split, task.classes) if groups else None,
    )


def _evaluate(task: SequenceTask, batch: Batch) -> tuple[torch.Tensor, float]:
    """Return logits (B, C) on the CPU and the loss of a batch, in evaluation mode."""
    device = task.device
    fields = {name: values.to(device) for name, values in batch.fields.items()}
    moved = batch._replace(fields=fields, lengths=batch.lengths.to(device), labels=batch.labels.to(device))
    task.eval()
    with torch.no_grad():
        logits = task(moved).float()
        return logits.cpu(), float(task.loss(logits, moved.labels))


def _mistake(split: Split, classes: Sequence[str], row: int, predicted: int) -> str:
    return f"{row_name(split, row)} is {classes[split.labels[row]]}, predicted {classes[predicted]}"


def _all_equal(split: Split, rows: np.ndarray) -> bool:
    """Return True if all rows have the same tokens."""
    groups = contradictions(split.sequences, np.arange(len(split.labels)), rows)
    return any(len(group) == len(rows) for group in groups)
