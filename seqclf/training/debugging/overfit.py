"""Training on a single batch again and again, to test whether the model can learn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader

from seqclf.batching.datamodule import Batch, SequenceDataModule, as_is
from seqclf.config.targets import Config
from seqclf.data.hashing import hash_rows
from seqclf.data.ragged import Ragged, take
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.models.heads.masked_norm import MaskedNorm
from seqclf.training.debugging.batch_rows import first_few, row_name
from seqclf.training.module import SequenceTask

# Endings of the names of arguments that control regularisation; the value 0 turns such regularisation off.
REGULARISATION = ("dropout", "noise", "smoothing", "weight_decay")
CONSTANT = {"warmup": 0.0, "decay": "none", "floor": 0.0}  # settings of a constant learning rate
# Number of consecutive low losses that end training; with a high learning rate, a single low loss may be chance.
CONFIRMED = 3
FALLING = 0.03  # the loss counts as falling if it decreases by at least this fraction in the last fifth of the steps
STILL = 0.02  # the loss counts as constant if it changes by less than this fraction of the first loss


@dataclass(frozen=True, kw_only=True)
class OverfitRecord:
    """Measurements of a training on one batch, which show whether the batch was learned.

    Contradictory rows have the same tokens but different labels. `losses`: mean loss per row before each step. `floor`:
    the lowest loss that is possible with contradictory rows. `goal`: for a learned batch, the last loss must be at most
    `floor` + `goal`. `wrong`: descriptions of the misclassified rows; contradictory rows are left out. `rows`: number
    of rows in the batch. `labels`: number of different labels. `unchanged`: names of the weight tensors that training
    did not change. `weights`: number of weight tensors. `constant`: True if all rows have the same logits.
    `contradictions`: one sentence per group of contradictory rows.
    """

    losses: Sequence[float]
    goal: float
    floor: float
    rows: int
    labels: int
    wrong: list[str]
    unchanged: list[str]
    weights: int
    constant: bool
    learning_rate: float
    contradictions: list[str]

    @property
    def learned(self) -> bool:
        """True if the last loss is at most `floor` + `goal`, and no row is misclassified."""
        return self.losses[-1] <= self.floor + self.goal and not self.wrong

    @property
    def accuracy(self) -> float:
        """Fraction of the rows that are not listed in `wrong`."""
        return 1 - len(self.wrong) / self.rows

    def text(self) -> str:
        """Return the verdict in one sentence.

        >>> facts = {"goal": 0.02, "floor": 0.0, "rows": 8, "labels": 2, "wrong": [], "unchanged": [], "weights": 4}
        >>> facts |= {"constant": False, "learning_rate": 0.1, "contradictions": []}
        >>> OverfitRecord(losses=[0.7, 0.3, 0.01], **facts).text()
        'LEARNED: the loss of 8 rows fell from 0.7 to 0.01 in 3 steps. The model and the path of the data can learn'
        """
        first, last = self.losses[0], self.losses[-1]
        course = f"from {first:.3g} to {last:.3g} in {len(self.losses):,} steps"
        if self.learned:
            reached = f", near the {self.floor:.3g} that contradictory labels leave" if self.floor else ""
            text = f"LEARNED: the loss of {self.rows} rows fell {course}{reached}. The model and the path of the data"
            return f"{text} can learn"
        moved = "fell only" if last < first else "did not fall:"
        return f"NOT LEARNED: the loss of {self.rows} rows {moved} {course}, not to {self.floor + self.goal:.3g}"

    def advice(self) -> list[str]:
        """Return advice if the batch was not learned, with the most likely cause first."""
        if self.learned:
            return []
        losses, rate, advice = np.array(self.losses), self.learning_rate, []
        fifth = max(1, len(losses) // 5)
        end, before = losses[-fifth:].mean(), losses[:-fifth][-fifth:].mean() if len(losses) > fifth else losses[0]
        changes = np.diff(losses[len(losses) // 2 :])
        jumps = len(changes) > 4 and changes.clip(min=0).sum() > 0.5 * -changes.clip(max=0).sum()
        if len(self.unchanged) == self.weights:
            return ["no weight changed: none requires a gradient, or the loss does not depend on any"]
        if self.constant:
            advice.append("all rows have the same logits: the network does not read its input, look at its forward")
        if np.ptp(losses) <= STILL * losses[0]:
            advice.append(f"the loss does not move: raise optimizer.lr (now {rate:.3g}) to {rate * 10:.3g} for example")
        elif jumps or end > losses[0]:
            advice.append(f"the loss goes up and down: lower optimizer.lr (now {rate:.3g}) to {rate / 10:.3g}")
        elif end < (1 - FALLING) * before:
            advice.append(f"the loss still falls: raise debug.steps (now {len(losses)}) or optimizer.lr ({rate:.3g})")
        elif not self.wrong:
            advice.append("every row is classified as labelled: raise debug.goal if the loss itself cannot reach 0")
        if self.wrong:
            named = first_few(self.wrong)
            advice.append(f"{len(self.wrong)} of {self.rows} rows are still wrong, look at their labels: {named}")
        return advice

    def notes(self) -> list[str]:
        """Return remarks that need attention even if the batch was learned."""
        notes = []
        if self.contradictions:
            named = first_few(self.contradictions)
            notes.append(f"the same tokens have different labels: {named}; correct the labels, or add a field")
        if self.labels == 1:
            notes.append("all rows of the batch have one label, which needs no input: set batching=balanced")
        if 0 < len(self.unchanged) < self.weights:
            named = first_few(self.unchanged)
            notes.append(f"{len(self.unchanged)} of {self.weights} weights never changed (frozen or unused): {named}")
        return notes


def without_regularisation(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a model, a loss or an optimizer with all regularisation turned off.

    Without regularisation, the loss can reach zero. Every argument whose name ends in `dropout`, `noise`, `smoothing`
    or `weight_decay` is set to 0. A learning rate schedule is replaced by a constant learning rate.

    >>> without_regularisation({"hidden_size": 8, "token_dropout": 0.1, "encoder": {"dropout": 0.5}})
    {'hidden_size': 8, 'token_dropout': 0.0, 'encoder': {'dropout': 0.0}}
    """
    result: Config = {**settings}
    for name, value in settings.items():
        if name == "schedule":
            result[name] = dict(CONSTANT)
        elif isinstance(value, Mapping):
            result[name] = without_regularisation(value)
        elif name.endswith(REGULARISATION) and type(value) in (int, float):
            result[name] = 0.0
    return result


def turn_off_dropout(network: nn.Module) -> None:
    """Set the dropout of all PyTorch modules in `network` to 0.

    The function also works for networks whose config has no dropout setting.
    """
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            module.dropout = 0.0


def normalise_by_batch(network: nn.Module) -> None:
    """Let normalization layers take the statistics of the batch, which running statistics reach after many steps."""
    for module in network.modules():
        if isinstance(module, (nn.modules.batchnorm._BatchNorm, MaskedNorm)):
            module.train()


def contradictions(sequences: Ragged, labels: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return the groups of contradictory rows: rows that have the same tokens but different labels.

    `rows`: indices of the compared rows in the split.

    >>> sequences = Ragged(np.array([0, 1, 2, 3]), {"token": np.array([5, 6, 5])})
    >>> contradictions(sequences, np.array([0, 0, 1]), np.arange(3))
    [array([0, 2])]
    """
    rows = np.sort(rows)
    batch = take(sequences, rows)
    hashes = np.stack([hash_rows(values, batch.offsets) for values in batch.fields.values()], axis=1)
    keys = np.unique(hashes, axis=0, return_inverse=True)[1].ravel()
    groups = sorted((rows[keys == key] for key in range(keys.max() + 1)), key=min)
    return [group for group in groups if len(np.unique(labels[group])) > 1]


def lowest_loss(loss: nn.Module, groups: Sequence[np.ndarray], labels: np.ndarray, classes: int, rows: int) -> float:
    """Return the lowest possible mean loss of a batch of `rows` rows that contains `groups` of contradictory rows.

    Rows outside of the groups are assumed to have a loss of 0. The best logits of a group are the logarithms of the
    fraction of each label in the group. This result is exact for cross-entropy.
    """
    total = 0.0
    device = next((buffer.device for buffer in loss.buffers()), torch.device("cpu"))
    with torch.no_grad():
        for group in groups:
            shares = np.bincount(labels[group], minlength=classes) / len(group)
            logits = torch.tensor(shares, dtype=torch.float32, device=device).clamp(min=1e-9).log()
            group_labels = torch.from_numpy(labels[group]).to(device)
            total += float(loss(logits.expand(len(group), -1), group_labels)) * len(group)
    return total / rows


class LossCurve(Callback):
    """Records the loss of each step, and ends training after `CONFIRMED` consecutive losses of at most `enough`."""

    def __init__(self) -> None:
        self.enough = -math.inf
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
    """Return the rows of one batch of the first epoch.

    The batch with the most different labels is chosen, and among several such batches the largest.
    """
    candidates: Sequence[np.ndarray] = batches.train_dataloader().sampler.batches  # type: ignore[attr-defined]
    return max(candidates, key=lambda rows: (len(np.unique(labels[rows])), len(rows)))


def overfit(
    trainer: pl.Trainer, task: SequenceTask, batches: SequenceDataModule, curve: LossCurve, goal: float, steps: int
) -> OverfitRecord:
    """Train `task` on one batch for at most `steps` steps, and return the measurements.

    `trainer`: a Trainer that has `curve` among its callbacks and allows at least `steps` steps. `goal`: for a learned
    batch, the loss must be at most the lowest possible loss plus `goal`.
    """
    split, classes = batches.splits["train"], task.classes
    rows = chosen_rows(batches, split.labels)
    labels = split.labels[rows]
    data: Any = batches.train_dataloader().dataset
    batch: Batch = data[rows]._replace(weight=1.0)
    groups = contradictions(split.sequences, split.labels, rows)
    floor = lowest_loss(task.loss, groups, split.labels, len(classes), len(rows))
    turn_off_dropout(task.model)
    before = {name: weight.detach().clone().cpu() for name, weight in task.model.named_parameters()}
    curve.enough = floor + goal
    repeated: Any = DataLoader([batch] * steps, batch_size=None, collate_fn=as_is)  # type: ignore[arg-type]
    trainer.fit(task, repeated, [])  # the empty list avoids Lightning's warning about a missing validation loader
    normalise_by_batch(task.eval())
    with torch.no_grad():
        logits = task(batch.to(task.device)).float().cpu()
    predicted = logits.argmax(dim=-1).numpy()
    is_contradictory = np.isin(rows, np.concatenate(groups)) if groups else np.zeros(len(rows), bool)
    wrong = np.flatnonzero((predicted != labels) & ~is_contradictory)
    return OverfitRecord(
        losses=curve.losses,
        goal=goal,
        floor=floor,
        rows=len(rows),
        labels=len(np.unique(labels)),
        wrong=[f"{_labelled(split, classes, rows[row])}, predicted {classes[predicted[row]]}" for row in wrong],
        unchanged=[name for name, weight in task.model.named_parameters() if torch.equal(before[name], weight.cpu())],
        weights=len(before),
        constant=not is_contradictory.all() and bool((logits - logits[:1]).abs().max() < 1e-5),
        learning_rate=float(task.optimizer["lr"]),
        contradictions=[_labels_text(group, split, classes) for group in groups],
    )


def _labels_text(group: np.ndarray, split: Split, classes: Sequence[str]) -> str:
    """Return a text that names the first row of each label in a group of contradictory rows."""
    first = np.unique(split.labels[group], return_index=True)[1]
    return " and ".join(_labelled(split, classes, row) for row in group[first])


def _labelled(split: Split, classes: Sequence[str], row: int) -> str:
    return f"{row_name(split, row)} is {classes[split.labels[row]]}"
