"""Scores of an epoch, collected step by step with torchmetrics and computed once at its end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import (
    BinaryAUROC,
    BinaryAveragePrecision,
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
    MulticlassPrecision,
    MulticlassRecall,
    MulticlassStatScores,
)

BATCHES_PER_COUNT = 64  # counting and adding a loss take torchmetrics 0.1 ms each, for a batch of any size
# torchmetrics warns where a class has no rows, which is handled here, and where a resumed run computes before it
# updates: its checkpoint holds the counts, but not the number of updates.
EXPECTED_WARNINGS = ("No (positive|negative) samples in targets", "The ``compute`` method of metric")


class EpochScores(NamedTuple):
    """Scores of one split in one epoch, the same on every rank.

    `scores`: loss, accuracy (micro), recall, precision and F1 (macro means as in `ConfusionMetrics`), and, in
    evaluation and where they are defined, average precision and AUROC. `recall_by_class` and `support`: (C,), the
    recall of a class without rows being 0.
    `confusion`: (C, C) counts, true class by row; None for training.
    """

    scores: dict[str, float]
    recall_by_class: np.ndarray
    support: np.ndarray
    confusion: np.ndarray | None = None


class LossSum(Metric):
    """Sum of losses over rows, in float64.

    Such a sum does not depend on the order of its batches, which resumed runs and ranks change, but for bits that
    float32 has not. torchmetrics' MeanMetric looks for NaN, and so waits for the device at every step; without that, it
    ignores weights (torchmetrics 1.9).
    """

    full_state_update = False
    sum_value: Tensor

    def __init__(self) -> None:
        super().__init__(compute_with_cache=False)
        self.add_state("sum_value", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, means: Tensor, rows: Tensor) -> None:
        """Add batches (N,) by their mean losses and numbers of rows."""
        self.sum_value += means.to(self.sum_value.dtype) @ rows.to(self.sum_value)

    def compute(self) -> Tensor:
        return self.sum_value


class EpochMetrics(nn.Module):
    """Loss and label scores of the training split.

    States are persistent, so that a run resumed inside an epoch counts all steps of that epoch.

    >>> import torch
    >>> metrics = EpochMetrics(num_classes=2)
    >>> metrics.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), loss=torch.tensor(0.5))
    >>> metrics.update(torch.tensor([[0.0, 3.0]]), torch.tensor([1]), loss=torch.tensor(0.2))
    >>> {name: round(score, 2) for name, score in metrics.compute().scores.items()}
    {'loss': 0.4, 'accuracy': 0.67, 'recall': 0.75, 'precision': 0.75, 'f1': 0.67}
    """

    def __init__(self, num_classes: int):
        super().__init__()
        self.loss_sum = LossSum()
        # Without the cache of results, which only an update of the metric itself would clear.
        options: dict[str, Any] = {"num_classes": num_classes, "validate_args": False, "compute_with_cache": False}
        by_label: dict[str, Metric | MetricCollection] = {
            "counts": MulticlassStatScores(average=None, **options),
            "accuracy": MulticlassAccuracy(average="micro", **options),
            "precision": MulticlassPrecision(average="macro", **options),
            "f1": MulticlassF1Score(average="macro", **options),
            "recall_by_class": MulticlassRecall(average=None, **options),
        }
        # One group: all of them read the states of its first metric, the counts per class.
        self.by_label = MetricCollection(by_label, compute_groups=[list(by_label)])
        self.loss_sum.persistent(True)
        self._counts.persistent(True)
        # Predicted labels, true labels and mean losses of the last batches.
        self.uncounted: list[tuple[Tensor, Tensor, Tensor]] = []
        self.register_state_dict_pre_hook(_count_before_storing)
        self.register_load_state_dict_pre_hook(_forget_before_loading)

    @property
    def _counts(self) -> MulticlassStatScores:
        # An attribute, because indexing a collection copies the states of its metrics.
        return self.by_label.counts  # type: ignore[return-value]

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Add a batch of logits (B, C) and labels (B,), with the mean `loss` of its rows."""
        self.uncounted.append((logits.detach().argmax(dim=-1), labels, loss.detach()))
        if len(self.uncounted) == BATCHES_PER_COUNT:
            self.count()

    def count(self) -> None:
        """Count the labels of all batches, and add up their losses."""
        if self.uncounted:
            predicted, labels, losses = zip(*self.uncounted, strict=True)
            self.uncounted.clear()
            self.loss_sum.update(torch.stack(losses), torch.tensor([len(batch) for batch in labels]))
            self._count(torch.cat(predicted), torch.cat(labels))

    def _count(self, predicted: Tensor, labels: Tensor) -> None:
        # Not through the collection, which shares the states anew at every update and so takes four times as long.
        # It shares them when it computes, too.
        self._counts.update(predicted, labels)

    def compute(self) -> EpochScores:
        """Compute the scores of all rows since the last reset, on all ranks together."""
        self.count()
        with warnings.catch_warnings():
            for message in EXPECTED_WARNINGS:
                warnings.filterwarnings("ignore", message)
            return self._compute()

    def _compute(self) -> EpochScores:
        values = self.by_label.compute()
        support = values["counts"][:, -1]
        loss = self.loss_sum.compute() / support.sum().clamp(min=1)
        scores = {"loss": float(loss.float())}  # float32 hides the last bits of the sum, which the order may change
        # torchmetrics drops the axis of a single class. Its macro mean counts classes that are predicted but have no
        # rows, whose recall is not 0 but unknown.
        recall_by_class, support = values["recall_by_class"].reshape(-1).cpu().numpy(), support.cpu().numpy()
        values["recall"] = recall_by_class[support > 0].mean() if support.any() else 0.0
        scores |= {name: float(values[name]) for name in ("accuracy", "recall", "precision", "f1")}
        return EpochScores(scores, recall_by_class, support)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if fn(torch.empty(0)).device.type == "mps":  # has no float64
            self.loss_sum.set_dtype(torch.float32)
        # What waits to be counted moves to another device with the states.
        self.uncounted = [(fn(predicted), fn(labels), fn(loss)) for predicted, labels, loss in self.uncounted]
        return super()._apply(fn, recurse)

    def reset(self) -> None:
        self.uncounted.clear()
        self.loss_sum.reset()
        self.by_label.reset()


class EvaluationMetrics(EpochMetrics):
    """Scores of the validation or test split: the confusion matrix and, if `ranked`, average precision and AUROC too.

    With the class index `positive` the latter two are those of this class, else their means over the classes that have
    rows, each against the rest. They need every row's probabilities, (N, C) float64, kept until the end of the epoch.
    Nothing is persistent, because an interrupted evaluation starts again.
    """

    def __init__(self, num_classes: int, *, ranked: bool, positive: int | None = None):
        super().__init__(num_classes)
        self.loss_sum.persistent(False)
        self._counts.persistent(False)
        self.positive = positive
        self.confusion = MulticlassConfusionMatrix(num_classes, validate_args=False)
        self.ranking: MetricCollection | None = None
        if ranked:
            options: dict[str, Any] = {"thresholds": None, "validate_args": False}
            if positive is None:
                options |= {"num_classes": num_classes, "average": None}
            average_precision = BinaryAveragePrecision if positive is not None else MulticlassAveragePrecision
            auroc = BinaryAUROC if positive is not None else MulticlassAUROC
            by_name: dict[str, Metric | MetricCollection] = {
                "average_precision": average_precision(**options),
                "auroc": auroc(**options),
            }
            # One group: the rows are stored once for both.
            self.ranking = MetricCollection(by_name, compute_groups=[list(by_name)])

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        super().update(logits, labels, loss)
        if self.ranking is None:
            return
        probabilities = _probabilities(logits.detach())
        labels = labels.to(probabilities.device)
        if self.positive is not None:
            probabilities, labels = probabilities[:, self.positive], (labels == self.positive).long()
        self.ranking.update(probabilities, labels)

    def _count(self, predicted: Tensor, labels: Tensor) -> None:
        super()._count(predicted, labels)
        self.confusion.update(predicted, labels)

    def _compute(self) -> EpochScores:
        result = super()._compute()
        classes = len(result.support)
        result = result._replace(confusion=self.confusion.compute().reshape(classes, classes).cpu().numpy())
        # The loss is the same on every rank, so that all of them skip what cannot be ranked.
        if self.ranking is None or not math.isfinite(result.scores["loss"]):
            return result
        ranked = _ranked_classes(result.support, self.positive)
        if not ranked.any():
            return result
        for name, value in self.ranking.compute().items():
            by_class = value.cpu().numpy()  # or a single number, of the positive class
            result.scores[name] = float(by_class[ranked].mean() if self.positive is None else by_class)
        return result

    def reset(self) -> None:
        super().reset()
        self.confusion.reset()
        if self.ranking is not None:
            self.ranking.reset()


# Functions, because hooks are pickled with their module.
def _count_before_storing(metrics: EpochMetrics, *_: Any) -> None:
    # States of an evaluation are not stored, and those made in inference mode cannot be changed outside of it.
    if not isinstance(metrics, EvaluationMetrics):
        metrics.count()


def _forget_before_loading(metrics: EpochMetrics, state: dict[str, Any], prefix: str, *_: Any) -> None:
    metrics.uncounted.clear()
    name = f"{prefix}loss_sum.sum_value"
    if name in state:  # float32 in older checkpoints
        state[name] = state[name].to(metrics.loss_sum.sum_value.dtype)


def _ranked_classes(support: np.ndarray, positive: int | None) -> np.ndarray:
    """(C,) bool: classes whose ranking is defined, because both they and the rest have rows.

    torchmetrics' macro AUROC counts a class without rows as 0.
    """
    present = support > 0
    if present.sum() < 2:
        return np.zeros_like(present)
    if positive is None:
        return present
    return present & (np.arange(len(present)) == positive)


def _probabilities(logits: Tensor) -> Tensor:
    """(B, C) float64 softmax. In float32, probabilities near 1 become ties, and ties change AUROC.

    Logits would not do: AUROC decides batch by batch, from their range, if they still need a softmax.
    """
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    return logits.double().softmax(dim=-1)
