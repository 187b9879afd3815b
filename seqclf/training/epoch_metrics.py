"""Scores of an epoch, counted batch by batch and computed once at the end of the epoch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, MulticlassAUROC, MulticlassAveragePrecision

from seqclf.training.own_metrics import OwnMetrics

# torchmetrics warns about a class without rows, but this module handles such classes. torchmetrics also warns when a
# resumed run computes scores before an update, because a checkpoint holds the counts but not the number of updates.
EXPECTED_WARNINGS = ("No (positive|negative) samples in targets", "The ``compute`` method of metric")


class EpochScores(NamedTuple):
    """Scores of one split in one epoch, the same in all ranks.

    `scores`: loss, accuracy, and the macro means recall, precision and f1; in evaluation also average precision and
    AUROC if they are defined. `recall_by_class`: (C,) recalls, 0 for a class without rows. `support`: (C,) rows of each
    class. `confusion`: (C, C) counts with the true class first; None for training.
    """

    scores: dict[str, float]
    recall_by_class: np.ndarray
    support: np.ndarray
    confusion: np.ndarray | None = None


class EpochMetrics(Metric):
    """Loss, accuracy, recall, precision and F1 of the training split. No update waits for the device.

    The counts are saved in checkpoints, so a run that is resumed inside an epoch counts all batches of that epoch. The
    loss is summed in float64 and reported in float32, so that the order of the batches, which resuming or several ranks
    change, moves no bit.

    >>> import torch
    >>> metrics = EpochMetrics(num_classes=2)
    >>> metrics.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), loss=torch.tensor(0.5))
    >>> metrics.update(torch.tensor([[0.0, 3.0]]), torch.tensor([1]), loss=torch.tensor(0.2))
    >>> {name: round(score, 2) for name, score in metrics.compute().scores.items()}
    {'loss': 0.4, 'accuracy': 0.67, 'recall': 0.75, 'precision': 0.75, 'f1': 0.67}
    """

    full_state_update = False
    is_saved = True
    loss_sum: Tensor
    counts: Tensor  # (3, C) numbers of rows: predicted correctly, predicted as the class, of the class

    def __init__(self, num_classes: int):
        super().__init__(compute_with_cache=False)
        self.skips_not_finite = False  # True: rows of steps that are skipped do not count (see `NotFiniteSteps`)
        states = {"loss_sum": torch.zeros((), dtype=torch.float64), "counts": torch.zeros(3, num_classes).long()}
        for name, value in states.items():
            self.add_state(name, value, dist_reduce_fx="sum", persistent=self.is_saved)

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Add a batch, given its logits (B, C), its labels (B,) and its mean `loss`."""
        if self.skips_not_finite and not torch.isfinite(loss):  # waits for the device only if steps are skipped
            return
        predicted = logits.detach().argmax(dim=-1)
        self.loss_sum += loss.detach().to(self.loss_sum.dtype) * len(labels)
        ones = torch.ones_like(labels)
        self.counts[0].scatter_add_(0, labels, (predicted == labels).long())
        self.counts[1].scatter_add_(0, predicted, ones)
        self.counts[2].scatter_add_(0, labels, ones)

    def compute(self) -> EpochScores:
        """Compute the scores of all rows since the last reset, over all ranks."""
        correct, predicted, support = self.counts
        loss = self.loss_sum / support.sum().clamp(min=1)
        recall_by_class = _ratio(correct, support)
        occurs = predicted + support > 0
        scores = {
            "loss": loss.float(),  # float32 drops the last bits, which depend on the batch order
            "accuracy": _ratio(correct.sum(), support.sum()),
            # The recall of a class without rows is undefined. Its precision is 0, if the class is predicted.
            "recall": recall_by_class.cpu().numpy()[(support > 0).cpu().numpy()].mean() if support.any() else 0.0,
            "precision": _mean(_ratio(correct, predicted), occurs),
            "f1": _mean(_ratio(2 * correct, predicted + support), occurs),
        }
        values = {name: float(value) for name, value in scores.items()}
        return EpochScores(values, recall_by_class.cpu().numpy(), support.cpu().numpy())

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        if fn(torch.empty(0)).device.type == "mps":  # the device mps has no float64
            self.loss_sum, self._defaults["loss_sum"] = self.loss_sum.float(), torch.zeros(())
        return super()._apply(fn, exclude_state)


class EvaluationMetrics(EpochMetrics):
    """Scores of the validation or test split, including the confusion matrix. An interrupted evaluation starts again.

    `ranked`: True to compute average precision and AUROC too, for which the margins of all rows, (N, C) float64, stay
    in memory until the end of the epoch. `positive`: number of the class that is ranked; None for means over the
    classes that have rows, each against all others. `own`: metrics of one's own, which get their rows from the task.
    """

    is_saved = False
    confusion: Tensor

    def __init__(self, num_classes: int, *, ranked: bool, positive: int | None = None, own: OwnMetrics | None = None):
        super().__init__(num_classes)
        self.positive = positive
        self.own = own
        self.add_state("confusion", torch.zeros(num_classes, num_classes).long(), dist_reduce_fx="sum")
        self.ranking: MetricCollection | None = None
        if ranked:
            options: dict[str, Any] = {"thresholds": None, "validate_args": False}
            kinds: Any = (BinaryAveragePrecision, BinaryAUROC)
            if positive is None:
                options |= {"num_classes": num_classes, "average": None}
                kinds = (MulticlassAveragePrecision, MulticlassAUROC)
            by_name: Any = {"average_precision": kinds[0](**options), "auroc": kinds[1](**options)}
            # Both metrics form one compute group, so they share one copy of the rows.
            self.ranking = MetricCollection(by_name, compute_groups=[list(by_name)])

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        super().update(logits, labels, loss)
        cells = labels * len(self.confusion) + logits.argmax(dim=-1)
        self.confusion.view(-1).scatter_add_(0, cells, torch.ones_like(cells))
        if self.ranking is None:
            return
        scores = _ranking_scores(logits.detach())
        labels = labels.to(scores.device)
        if self.positive is not None:
            scores, labels = scores[:, self.positive], (labels == self.positive).long()
        self.ranking.update(scores, labels)

    def compute(self) -> EpochScores:
        result = super().compute()._replace(confusion=self.confusion.cpu().numpy())
        ranked = _ranked_classes(result.support, self.positive)
        # If the loss is not finite, all ranks skip the other metrics, because all ranks have the same loss.
        if not math.isfinite(result.scores["loss"]):
            return result
        if self.ranking is not None and ranked.any():
            for name, value in self.ranking.compute().items():
                by_class = value.cpu().numpy()  # (C,) values, or a single value for the positive class
                result.scores[name] = float(by_class[ranked].mean() if self.positive is None else by_class)
        if self.own is not None:
            result.scores.update(self.own.compute())
        return result

    def reset(self) -> None:
        super().reset()
        for part in (self.ranking, self.own):
            if part is not None:
                part.reset()


def epoch_scores(metrics: EpochMetrics) -> EpochScores:
    """Compute the scores of an epoch and reset the metrics."""
    with warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        result = metrics.compute()
    metrics.reset()
    return result


def _ratio(counts: Tensor, of: Tensor) -> Tensor:
    return torch.where(of > 0, counts.float() / of.float(), 0.0)


def _mean(values: Tensor, occurs: Tensor) -> Tensor:
    """Return the mean over the classes that occur, as labels or as predictions; 0 without such a class."""
    return (values * occurs / occurs.sum().clamp(min=1)).sum()


def _ranked_classes(support: np.ndarray, positive: int | None) -> np.ndarray:
    """Return a mask (C,) of the classes with rows in and outside: torchmetrics counts the AUROC of others as 0."""
    present = support > 0
    chosen = present.sum() > 1 and (positive is None or np.arange(len(present)) == positive)
    return present & chosen


def _ranking_scores(logits: Tensor) -> Tensor:
    """Return the margins (B, C) in float64, m = log p - log(1 - p), as (1 + m / (1 + |m|)) / 2.

    Probabilities near 1 would tie, which changes AUROC. Outside of 0 to 1, torchmetrics may apply a softmax to a batch.
    """
    if logits.device.type == "mps":  # the device mps has no float64
        logits = logits.cpu()
    shares = logits.double().softmax(dim=-1)
    top = shares.argmax(dim=-1, keepdim=True)
    others = (1 - shares).scatter(1, top, shares.scatter(1, top, 0.0).sum(dim=-1, keepdim=True))
    margins = shares.clamp(min=5e-324).log() - others.clamp(min=5e-324).log()
    return (1 + margins / (1 + margins.abs())) / 2
