"""Classification metrics of one split, by the same numpy code in training and `evaluate`.

During training, torchmetrics computes the scores of each epoch (`training/epoch_metrics.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqclf.evaluation.calibration import calibration_error
from seqclf.evaluation.design_effect import or_one
from seqclf.evaluation.ranking import RANKING_METRICS, ranking_metrics
from seqclf.system.json_result import JsonObject, JsonResult

MAIN_METRICS = ("loss", "accuracy", "recall", "precision", "f1")
EPOCH_METRICS = (*MAIN_METRICS, *RANKING_METRICS)  # names of the metrics of an epoch


@dataclass(frozen=True, kw_only=True)
class ConfusionMetrics(JsonResult):
    """Metrics that follow from a confusion matrix.

    `recall`: macro mean over the classes that have rows (balanced accuracy). `precision`, `f1`: macro means over the
    classes among labels or predictions, as in scikit-learn, where a ratio with the denominator 0 counts as 0; in a dict
    such as `recall_by_class`, it is None. `mcc`: Matthews' correlation coefficient. `confusion[i][j]`: rows of class i
    that were predicted as class j.
    """

    accuracy: float
    recall: float
    precision: float
    f1: float
    mcc: float
    recall_by_class: dict[str, float | None]
    precision_by_class: dict[str, float | None]
    f1_by_class: dict[str, float | None]
    support_by_class: dict[str, int]
    confusion: list[list[int]]


@dataclass(frozen=True, kw_only=True)
class LabelMetrics(JsonResult):
    """Metrics of one label on some rows, None if undefined. `rows`: with the label. `alerts`: predicted as the label.

    In weighted metrics, both are sums of weights.

    `auroc`, `average_precision`: None if no row or every row has the label.
    """

    label: str
    rows: int | float
    alerts: int | float
    recall: float | None
    precision: float | None
    f1: float | None
    average_precision: float | None
    auroc: float | None


@dataclass(frozen=True, kw_only=True)
class Metrics(ConfusionMetrics):
    """Numbers of one model on one set of rows. `positive`: those of the positive label, if there is one.

    `loss`: mean of -log p(label). `ece`: expected calibration error. `average_precision`, `auroc`: with more than two
    classes, means over classes, each ranked against all others.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"positive"})

    rows: int
    loss: float
    ece: float
    average_precision: float | None = None
    auroc: float | None = None
    positive: LabelMetrics | None = None

    def to_dict(self) -> JsonObject:
        state = super().to_dict()
        if len(self.support_by_class) == 2:  # for two classes, `positive` holds both metrics of the positive label
            del state["average_precision"], state["auroc"]
        return state

    def value(self, metric: str) -> float:
        """Return a metric by which models are compared (see `deciding_metric`), 0 for an undefined value."""
        is_of_label = metric == "average_precision"  # of the positive label, if there is one
        return float(getattr((self.positive if is_of_label else None) or self, metric) or 0.0)


def confusion_matrix(
    labels: np.ndarray, predicted: np.ndarray, num_classes: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the confusion matrix (C, C) by true and predicted class: rows, or sums of `weights` (N,)."""
    # Each pair (true, predicted) becomes one number to the base `num_classes`, so one pass over the rows counts all
    # pairs.
    cells = labels * num_classes + predicted
    return np.bincount(cells, weights, num_classes**2).reshape(num_classes, num_classes)


def confusion_metrics(confusion: np.ndarray, classes: list[str]) -> ConfusionMetrics:
    """Return the metrics of a confusion matrix (C, C) with the class names `classes`.

    >>> metrics = confusion_metrics(np.array([[98, 0], [1, 1]]), ["legitimate", "fraud"])
    >>> metrics.accuracy, metrics.recall_by_class["fraud"]
    (0.99, 0.5)
    """
    hits = np.diag(confusion).astype(np.float64)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    # If a denominator is 0, the number of hits is 0 too, so a denominator of 1 gives the ratio 0.
    recall, precision, f1 = (
        numerator / or_one(denominator)
        for numerator, denominator in ((hits, support), (hits, predicted), (2 * hits, support + predicted))
    )
    # A class without labels and without predictions is left out, because it would lower the macro means.
    occurs = (support + predicted) > 0
    rows = support.sum() or 1

    def macro(values: np.ndarray, classes: np.ndarray) -> float:
        return float(values[classes].mean()) if classes.any() else 0.0

    def by_class(values: np.ndarray, is_defined: np.ndarray) -> dict[str, float | None]:
        pairs = zip(classes, values.tolist(), is_defined, strict=True)
        return {label: value if defined else None for label, value, defined in pairs}

    return ConfusionMetrics(
        accuracy=float(hits.sum() / rows),
        recall=macro(recall, support > 0),
        precision=macro(precision, occurs),
        f1=macro(f1, occurs),
        mcc=_matthews(confusion),
        recall_by_class=by_class(recall, support > 0),
        precision_by_class=by_class(precision, predicted > 0),
        f1_by_class=by_class(f1, occurs),
        support_by_class=dict(zip(classes, support.tolist(), strict=True)),
        confusion=confusion.tolist(),
    )


def _matthews(confusion: np.ndarray) -> float:
    """Return Matthews' correlation coefficient for any number of classes (Gorodkin 2004), or 0 if it is not defined."""
    counts = confusion.astype(np.float64)
    rows, support, predicted = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    # The counts are converted to floats, because products of squared counts overflow int64 in large splits.
    variance = (rows**2 - predicted @ predicted) * (rows**2 - support @ support)
    covariance = np.trace(counts) * rows - support @ predicted
    return float(covariance / np.sqrt(variance)) if variance > 0 else 0.0


def classification_metrics(
    labels: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    predicted: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Metrics:
    """Return the metrics of one split, in which each row counts by its weight (N,) if there are `weights`.

    `labels`: (N,) class numbers. `probabilities`: (N, C). `predicted`: (N,), None for the most probable classes.
    `positive`: the positive label, None with more than two classes.

    >>> labels, probabilities = np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    >>> metrics = classification_metrics(labels, probabilities, ["no", "yes"], positive="yes")
    >>> metrics.positive.recall, metrics.positive.precision, round(metrics.loss, 3)
    (1.0, 0.5, 0.415)
    """
    labels = labels.astype(np.int64)
    if predicted is None:
        predicted = probabilities.argmax(axis=1)
    of_label = probabilities[np.arange(len(labels)), labels]
    by_class = confusion_metrics(confusion_matrix(labels, predicted, len(classes), weights), classes)
    ranking, of_positive = dict[str, Any](), None
    if len(classes) > 2:
        ranking = ranking_metrics(labels, probabilities, weights=weights)
    if positive is not None:
        of_label_alone = ranking_metrics(labels, probabilities, classes.index(positive), weights)
        of_positive = label_metrics(by_class, positive, of_label_alone)
    return Metrics(
        **vars(by_class),
        rows=len(labels),
        # + 0.0 turns -0.0 into 0.0.
        loss=_mean(-np.log(np.clip(of_label.astype(np.float64), 1e-12, None)), weights) + 0.0,
        ece=calibration_error(labels, probabilities, weights),
        positive=of_positive,
        **ranking,
    )


def _mean(values: np.ndarray, weights: np.ndarray | None) -> float:
    return float(values.mean() if weights is None else values @ weights / weights.sum())


def label_metrics(metrics: ConfusionMetrics, label: str, ranking: Mapping[str, float | None]) -> LabelMetrics:
    """Return the metrics of a label. `ranking`: dict of its `RANKING_METRICS`."""
    index = list(metrics.support_by_class).index(label)
    return LabelMetrics(
        label=label,
        rows=metrics.support_by_class[label],
        alerts=sum(row[index] for row in metrics.confusion),
        recall=metrics.recall_by_class[label],
        precision=metrics.precision_by_class[label],
        f1=metrics.f1_by_class[label],
        average_precision=ranking["average_precision"],
        auroc=ranking["auroc"],
    )


def majority_metrics(support: Mapping[str, int], label: str, positive: str | None) -> Metrics:
    """Return the metrics of always predicting `label`. `support`: dict label → rows. The loss is undefined: NaN."""
    classes, rows = list(support), sum(support.values())
    confusion = np.zeros((len(classes), len(classes)), np.int64)
    confusion[:, classes.index(label)] = list(support.values())
    by_class, of_positive = confusion_metrics(confusion, classes), None
    if positive is not None:
        share = support[positive] / rows
        constant = {"average_precision": share, "auroc": 0.5} if 0 < share < 1 else dict.fromkeys(RANKING_METRICS)
        of_positive = label_metrics(by_class, positive, constant)
    return Metrics(**vars(by_class), rows=rows, loss=float("nan"), ece=1 - by_class.accuracy, positive=of_positive)


# Names of metrics. In files, metrics have short keys: `recall` stands for macro recall.

# These metrics are means over classes unless a label is given.
MACRO_METRICS = {"recall": "recall", "precision": "precision", "f1": "F1"}
OTHER_METRICS = {
    "auroc": "AUROC",
    "mcc": "Matthews' correlation",
    "ece": "calibration error",
    "recall_at_equal_alerts": "recall at equal alerts",
}


def metric_title(name: str, label: str | None = None) -> str:
    """Return the name of a metric in words. `label`: class that the metric describes, None for a mean over classes.

    >>> metric_title("recall"), metric_title("recall", "fraud"), metric_title("f1"), metric_title("average_precision")
    ('macro recall', 'recall of fraud', 'macro F1', 'average precision')
    """
    if name in MACRO_METRICS:
        return f"macro {MACRO_METRICS[name]}" if label is None else f"{MACRO_METRICS[name]} of {label}"
    return OTHER_METRICS.get(name, name.replace("_", " "))


class ShownMetric(NamedTuple):
    """A row of a score table: the name of a metric, and True if it is one of the positive label, or of one's own."""

    name: str
    of_positive: bool = False
    is_own: bool = False

    def value(self, block: Any) -> Any:
        """Return the metric's value, or its interval if `block` holds intervals. Some metrics have no interval."""
        if self.is_own:
            return (getattr(block, "own", None) or {}).get(self.name)
        return getattr(block.positive if self.of_positive else block, self.name, None)


def metric_key(name: str, label: str | None = None) -> str:
    """Return the key under which a logger stores a metric, with the label or the word `macro`.

    >>> metric_key("recall"), metric_key("recall", "fraud"), metric_key("average_precision", "fraud")
    ('macro_recall', 'recall_of_fraud', 'average_precision')
    """
    if name not in MACRO_METRICS:
        return name
    return f"macro_{name}" if label is None else f"{name}_of_{label}"
