"""Scores of an epoch, collected batch by batch with torchmetrics and computed once at the end of the epoch."""

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

# Number of batches that are added to the metric states together. One update of a torchmetrics metric takes 0.1 ms,
# whatever the number of rows.
BATCHES_PER_COUNT = 64
# torchmetrics warns about a class without rows, but this module handles such classes. torchmetrics also warns when a
# resumed run computes scores before an update, because a checkpoint holds the counts but not the number of updates.
EXPECTED_WARNINGS = ("No (positive|negative) samples in targets", "The ``compute`` method of metric")


class EpochScores(NamedTuple):
    """Scores of one split in one epoch. All ranks have the same scores.

    `scores`: dict name → score. The names are loss, accuracy, recall, precision and f1. The recall, the precision and
    the F1 are macro means as in `ConfusionMetrics`. In evaluation, `scores` also holds average precision and AUROC if
    they are defined. `recall_by_class`: (C,) recalls, 0 for a class without rows. `support`: (C,) number of rows of
    each class. `confusion`: (C, C) counts with the true class as the first axis; None for training.
    """

    scores: dict[str, float]
    recall_by_class: np.ndarray
    support: np.ndarray
    confusion: np.ndarray | None = None


class LossSum(Metric):
    """Sum of the losses of all rows in float64.

    Resuming a run, or using several ranks, changes the order of the batches. The order changes only the last bits of a
    float64 sum, and a conversion to float32 drops these bits. The class `MeanMetric` of torchmetrics is not used,
    because its check for NaN waits for the device at every step. If the check for NaN is turned off, `MeanMetric`
    ignores weights (torchmetrics 1.9).
    """

    full_state_update = False
    sum_value: Tensor

    def __init__(self) -> None:
        super().__init__(compute_with_cache=False)
        self.add_state("sum_value", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, means: Tensor, rows: Tensor) -> None:
        """Add N batches, given the mean loss (N,) and the number of rows (N,) of each batch."""
        self.sum_value += means.to(self.sum_value.dtype) @ rows.to(self.sum_value)

    def compute(self) -> Tensor:
        return self.sum_value


class EpochMetrics(nn.Module):
    """Loss, accuracy, recall, precision and F1 of the training split.

    The metric states are saved in checkpoints, so a run that is resumed inside an epoch counts all batches of that
    epoch.

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
        # The metrics do not cache their results, because a metric clears its cache only when the metric itself is
        # updated.
        options: dict[str, Any] = {"num_classes": num_classes, "validate_args": False, "compute_with_cache": False}
        by_label: dict[str, Metric | MetricCollection] = {
            "counts": MulticlassStatScores(average=None, **options),
            "accuracy": MulticlassAccuracy(average="micro", **options),
            "precision": MulticlassPrecision(average="macro", **options),
            "f1": MulticlassF1Score(average="macro", **options),
            "recall_by_class": MulticlassRecall(average=None, **options),
        }
        # All metrics form one compute group, so they share the state of the first metric, which counts rows per class.
        self.by_label = MetricCollection(by_label, compute_groups=[list(by_label)])
        self.loss_sum.persistent(True)
        self._counts.persistent(True)
        # Predicted labels, true labels and mean losses of the batches that are not counted yet.
        self.uncounted: list[tuple[Tensor, Tensor, Tensor]] = []
        self.register_state_dict_pre_hook(_count_before_storing)
        self.register_load_state_dict_pre_hook(_forget_before_loading)

    @property
    def _counts(self) -> MulticlassStatScores:
        # Access the metric as an attribute, because indexing a MetricCollection copies the states of its metrics.
        return self.by_label.counts  # type: ignore[return-value]

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """Add a batch, given its logits (B, C), its labels (B,) and its mean `loss`."""
        self.uncounted.append((logits.detach().argmax(dim=-1), labels, loss.detach()))
        if len(self.uncounted) == BATCHES_PER_COUNT:
            self.count()

    def count(self) -> None:
        """Add all batches that are not counted yet to the metric states."""
        if self.uncounted:
            predicted, labels, losses = zip(*self.uncounted, strict=True)
            self.uncounted.clear()
            self.loss_sum.update(torch.stack(losses), torch.tensor([len(batch) for batch in labels]))
            self._count(torch.cat(predicted), torch.cat(labels))

    def _count(self, predicted: Tensor, labels: Tensor) -> None:
        # Update the metric itself, because an update of the collection shares the states again and takes four times as
        # long. The collection shares the states anyway when it computes the scores.
        self._counts.update(predicted, labels)

    def compute(self) -> EpochScores:
        """Compute the scores of all rows since the last reset, over all ranks."""
        self.count()
        with warnings.catch_warnings():
            for message in EXPECTED_WARNINGS:
                warnings.filterwarnings("ignore", message)
            return self._compute()

    def _compute(self) -> EpochScores:
        values = self.by_label.compute()
        support = values["counts"][:, -1]
        loss = self.loss_sum.compute() / support.sum().clamp(min=1)
        scores = {"loss": float(loss.float())}  # float32 drops the last bits, which depend on the batch order
        # With a single class, torchmetrics returns the recall without a class axis. The macro recall of torchmetrics
        # also includes classes that are predicted but have no rows, although their recall is undefined.
        recall_by_class, support = values["recall_by_class"].reshape(-1).cpu().numpy(), support.cpu().numpy()
        values["recall"] = recall_by_class[support > 0].mean() if support.any() else 0.0
        scores |= {name: float(values[name]) for name in ("accuracy", "recall", "precision", "f1")}
        return EpochScores(scores, recall_by_class, support)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        if fn(torch.empty(0)).device.type == "mps":  # the device mps has no float64
            self.loss_sum.set_dtype(torch.float32)
        # The batches that are not counted yet move to another device together with the metric states.
        self.uncounted = [(fn(predicted), fn(labels), fn(loss)) for predicted, labels, loss in self.uncounted]
        return super()._apply(fn, recurse)

    def reset(self) -> None:
        self.uncounted.clear()
        self.loss_sum.reset()
        self.by_label.reset()


class EvaluationMetrics(EpochMetrics):
    """Scores of the validation or test split, including the confusion matrix.

    `ranked`: True to compute average precision and AUROC too. `positive`: number of the class whose average precision
    and AUROC are computed. If `positive` is None, both metrics are means over the classes that have rows, and each
    class is ranked against all others. Average precision and AUROC keep the probabilities of all rows, (N, C) float64,
    in memory until the end of the epoch. The metric states are not saved in checkpoints, because an interrupted
    evaluation starts again.
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
            # Both metrics form one compute group, so they share one copy of the rows.
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
        # If the loss is not finite, all ranks skip the ranking metrics, because all ranks have the same loss.
        if self.ranking is None or not math.isfinite(result.scores["loss"]):
            return result
        ranked = _ranked_classes(result.support, self.positive)
        if not ranked.any():
            return result
        for name, value in self.ranking.compute().items():
            by_class = value.cpu().numpy()  # (C,) values, or a single value for the positive class
            result.scores[name] = float(by_class[ranked].mean() if self.positive is None else by_class)
        return result

    def reset(self) -> None:
        super().reset()
        self.confusion.reset()
        if self.ranking is not None:
            self.ranking.reset()


# The hooks are module-level functions, because hooks are pickled with their module.
def _count_before_storing(metrics: EpochMetrics, *_: Any) -> None:
    # The states of `EvaluationMetrics` are not saved, so its batches need not be counted here. The tensors of
    # `EvaluationMetrics` may come from inference mode, and can then not be changed outside of that mode.
    if not isinstance(metrics, EvaluationMetrics):
        metrics.count()


def _forget_before_loading(metrics: EpochMetrics, state: dict[str, Any], prefix: str, *_: Any) -> None:
    metrics.uncounted.clear()
    name = f"{prefix}loss_sum.sum_value"
    if name in state:  # a checkpoint of the device mps holds the sum in float32
        state[name] = state[name].to(metrics.loss_sum.sum_value.dtype)


def _ranked_classes(support: np.ndarray, positive: int | None) -> np.ndarray:
    """Return a mask (C,) of the classes with defined ranking metrics.

    Ranking metrics need rows of the class and rows of other classes. The mask is needed because the macro AUROC of
    torchmetrics counts a class without rows as 0.
    """
    present = support > 0
    if present.sum() < 2:
        return np.zeros_like(present)
    if positive is None:
        return present
    return present & (np.arange(len(present)) == positive)


def _probabilities(logits: Tensor) -> Tensor:
    """Return the softmax probabilities (B, C) in float64.

    In float32, probabilities near 1 would become equal, and such ties would change AUROC. torchmetrics does not get the
    logits, because its AUROC decides for each batch, by the range of the values, whether to apply a softmax.
    """
    if logits.device.type == "mps":  # the device mps has no float64
        logits = logits.cpu()
    return logits.double().softmax(dim=-1)
