"""Training on one batch, again and again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from seqclf.batching.datamodule import Batch, SequenceDataModule, as_is
from seqclf.config.targets import Config
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.training.debugging.module_hooks import row_name
from seqclf.training.debugging.overfit_verdict import OverfitRecord
from seqclf.training.module import SequenceTask

# A training without regularisation, in which nothing but its learning decides how far the loss falls.

NAMES = ("dropout", "noise", "smoothing")  # arguments that end so take a share or a size, and 0 turns them off
CONSTANT = {"warmup": 0.0, "decay": "none", "floor": 0.0}


def without_regularisation(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a model, a loss or an optimizer with everything turned off that keeps a loss from zero.

    These are dropout, noise and label smoothing by any name that ends so, weight decay, and the schedule of the
    learning rate.

    >>> without_regularisation({"hidden_size": 8, "token_dropout": 0.1, "encoder": {"dropout": 0.5}})
    {'hidden_size': 8, 'token_dropout': 0.0, 'encoder': {'dropout': 0.0}}
    """
    result: Config = {}
    for name, value in settings.items():
        if name == "schedule":
            result[name] = dict(CONSTANT)
        elif isinstance(value, Mapping):
            result[name] = without_regularisation(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and _is_regularisation(name):
            result[name] = 0.0
        else:
            result[name] = value
    return result


def _is_regularisation(name: str) -> bool:
    return name == "weight_decay" or name.endswith(NAMES)


def turn_off_dropout(network: nn.Module) -> None:
    """Set the dropout of PyTorch's modules to 0, for networks whose settings do not name it."""
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            module.dropout = 0.0


def is_random(task: Any, batch: Batch) -> bool:
    """Return True if the logits of a batch still depend on random numbers in training."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first: Tensor = task(batch)
        torch.manual_seed(1)
        return not torch.allclose(first, task(batch), rtol=1e-3, atol=1e-4, equal_nan=True)


# Rows of a batch with the same tokens under different labels, whose loss no model can bring to zero.

MAX_SHOWN = 3


def contradictions(sequences: Ragged, labels: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """Return groups of `rows` (indices in the split) that have the same tokens, and not all the same label.

    >>> sequences = Ragged(np.array([0, 1, 2, 3]), {"token": np.array([5, 6, 5])})
    >>> contradictions(sequences, np.array([0, 0, 1]), np.arange(3))
    [array([0, 2])]
    """
    by_tokens: dict[tuple[bytes, ...], list[int]] = {}
    for row in sorted(int(row) for row in rows):
        span = slice(sequences.offsets[row], sequences.offsets[row + 1])
        key = tuple(np.ascontiguousarray(values[span]).tobytes() for values in sequences.fields.values())
        by_tokens.setdefault(key, []).append(row)
    groups = [np.array(group) for group in by_tokens.values()]
    return [group for group in groups if len(np.unique(labels[group])) > 1]


def lowest_loss(loss: nn.Module, groups: Sequence[np.ndarray], labels: np.ndarray, classes: int, rows: int) -> float:
    """Return the mean loss of a batch of `rows` whose logits fit everything but contradictory `groups`.

    The best logits of equal tokens are the log shares of their labels. That is exact for cross-entropy.
    """
    total = 0.0
    device = next((buffer.device for buffer in loss.buffers()), torch.device("cpu"))
    with torch.no_grad():
        for group in groups:
            counts = np.bincount(labels[group], minlength=classes)
            logits = torch.tensor(counts / counts.sum(), dtype=torch.float32, device=device).clamp(min=1e-9).log()
            group_labels = torch.from_numpy(labels[group]).to(device)
            total += float(loss(logits.expand(len(group), -1), group_labels)) * len(group)
    return total / rows


def contradiction_text(groups: Sequence[np.ndarray], split: Split, classes: Sequence[str]) -> str:
    """Return a sentence that names the rows of contradictory groups and their labels."""
    shown = []
    for group in groups[:MAX_SHOWN]:
        by_label: Mapping[int, int] = {int(split.labels[row]): int(row) for row in group[::-1]}
        rows = [f"{row_name(split, row)} is {classes[label]}" for label, row in sorted(by_label.items())]
        shown.append(" and ".join(rows))
    more = f"; and {len(groups) - MAX_SHOWN} more" if len(groups) > MAX_SHOWN else ""
    count = sum(map(len, groups))
    return f"{count} rows of the batch have the same tokens under different labels: {'; '.join(shown)}{more}"


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
