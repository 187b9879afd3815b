"""Labels and probabilities → the numbers of a verdict. Pure numpy; the trainer and the bundle share it, so a metric
means the same on both sides of an export.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAIN_METRICS = ("loss", "accuracy", "recall", "precision", "f1")
RANKING_METRICS = ("average_precision", "auroc")  # of the order of rows, whatever the threshold
CALIBRATION_BINS = 15
OPERATING_POINTS = (0.5, 0.8, 0.9, 0.95)  # precisions and recalls at which the other is told
ALERT_SHARES = (0.01, 0.05, 0.1)
TOP = (2, 3, 5)


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """(C, C) counts: true class by row, predicted class by column."""
    return np.bincount(labels * num_classes + predicted, minlength=num_classes**2).reshape(num_classes, num_classes)


def confusion_metrics(confusion: np.ndarray, classes: list[str]) -> dict[str, Any]:
    """Micro accuracy; macro and weighted recall, precision and F1, and each per class; balanced accuracy; Matthews'
    correlation.

    As in scikit-learn and torchmetrics, the macro mean is over classes that occur as truth or as prediction, and a
    ratio without a denominator counts as 0; per class it is None where a class has no rows. Balanced accuracy is the
    mean recall of the classes that have rows.
    """
    right = np.diag(confusion).astype(np.float64)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    recall = right / np.maximum(support, 1)
    precision = right / np.maximum(predicted, 1)
    f1 = 2 * right / np.maximum(support + predicted, 1)
    seen = (support + predicted) > 0
    means = {"recall": recall, "precision": precision, "f1": f1}
    rows = max(1, int(support.sum()))
    return {
        "accuracy": float(right.sum() / rows),
        **{name: float(values[seen].mean()) if seen.any() else 0.0 for name, values in means.items()},
        "weighted": {name: float((values * support).sum() / rows) for name, values in means.items()},
        "balanced_accuracy": float(recall[support > 0].mean()) if support.any() else 0.0,
        "mcc": _matthews(confusion),
        "recall_by_class": _by_class(classes, recall, support > 0),
        "precision_by_class": _by_class(classes, precision, predicted > 0),
        "f1_by_class": _by_class(classes, f1, seen),
        "support_by_class": {name: int(count) for name, count in zip(classes, support, strict=True)},
    }


def _matthews(confusion: np.ndarray) -> float:
    """Matthews' correlation coefficient of any number of classes (Gorodkin 2004); 0 where it is not defined."""
    counts = confusion.astype(np.float64)
    rows, truth, predicted = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    spread = (rows**2 - predicted @ predicted) * (rows**2 - truth @ truth)
    return float((np.trace(counts) * rows - truth @ predicted) / np.sqrt(spread)) if spread > 0 else 0.0


def _by_class(classes: list[str], values: np.ndarray, known: np.ndarray) -> dict[str, float | None]:
    rows = zip(classes, values, known, strict=True)
    return {name: float(value) if is_known else None for name, value, is_known in rows}


def classification_metrics(
    labels: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    predicted: np.ndarray | None = None,
) -> dict[str, Any]:
    """All scores of one split. `labels`: (N,) int64; `probabilities`: (N, C); `predicted`: (N,) what was decided, the
    most probable class if it is not given.

    `loss` is the mean of -log p(label). For more than two classes AUROC and average precision are means over classes,
    each against the rest. With `positive`, a block of its own.
    """
    labels = labels.astype(np.int64)
    chosen = np.clip(probabilities[np.arange(len(labels)), labels].astype(np.float64), 1e-12, None)
    if predicted is None:
        predicted = probabilities.argmax(axis=1)
    confusion = confusion_matrix(labels, predicted, len(classes))
    found = {"rows": len(labels), "loss": float(-np.log(chosen).mean()) + 0.0, **confusion_metrics(confusion, classes)}
    found["confusion"] = confusion.tolist()
    found["ece"] = calibration_error(labels, probabilities)
    if len(classes) > 2:
        found |= ranking_metrics(labels, probabilities)
        own = probabilities[np.arange(len(labels)), labels]
        # Ties count against the label, so that equal probabilities for all find nothing.
        rank = (probabilities >= own[:, None]).sum(axis=1)
        found["recall_at_k"] = {str(k): float((rank <= k).mean()) for k in TOP if k < len(classes)}
    if positive is not None:
        found["positive"] = positive_metrics(labels, probabilities, confusion, classes, positive)
    return found


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Expected calibration error: how far the probability of the most probable class is from the share of rows in which
    it is right, over 15 bins of equal width (Guo et al. 2017)."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    places = np.clip(np.ceil(confidence * CALIBRATION_BINS).astype(np.int64) - 1, 0, CALIBRATION_BINS - 1)
    gaps = np.bincount(places, weights=right - confidence, minlength=CALIBRATION_BINS)
    return float(np.abs(gaps).sum() / max(1, len(labels)))


def ranking_metrics(labels: np.ndarray, probabilities: np.ndarray, positive: int | None = None) -> dict[str, Any]:
    """Average precision and AUROC of the class `positive`, or their mean over classes, each against the rest; None
    where no class has both rows and others."""
    present = np.unique(labels).tolist()
    codes = present if positive is None else [code for code in present if code == positive]
    if len(present) < 2 or not codes:
        return dict.fromkeys(RANKING_METRICS)
    each = [_ranking(labels == code, probabilities[:, code]) for code in codes]
    return {name: float(np.mean([own[name] for own in each])) for name in RANKING_METRICS}


def _ranking(truth: np.ndarray, score: np.ndarray) -> dict[str, float]:
    """Average precision and AUROC; scikit-learn's would take ten times as long for some thousand rows."""
    levels, places = np.unique(-score, return_inverse=True)
    found = ranking_from_counts(ranking_counts(truth, places, len(levels))[None])
    return {name: float(found[name][0]) for name in RANKING_METRICS}


def ranking_counts(truth: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """(2, G): rows of each group that are not and that are `truth`."""
    return np.stack([np.bincount(group[truth == side], minlength=count) for side in (False, True)]).astype(np.float64)


def ranking_from_counts(cells: np.ndarray) -> dict[str, np.ndarray]:
    """Average precision and AUROC (R,) of (R, 2, G) counts, groups by descending score; rows of a group are ties. NaN
    where there are not both kinds of rows."""
    wrong, right = cells[:, 0], cells[:, 1]
    found, alarms = right.cumsum(axis=1), wrong.cumsum(axis=1)
    total, others = found[:, -1:], alarms[:, -1:]
    defined = ((total > 0) & (others > 0))[:, 0]
    precision = found / np.maximum(found + alarms, 1)
    above = (wrong * (found - right / 2)).sum(axis=1)
    average = (right * precision).sum(axis=1) / np.maximum(total, 1)[:, 0]
    auroc = above / np.maximum(total * others, 1)[:, 0]
    return {
        "average_precision": np.where(defined, average, np.nan),
        "auroc": np.where(defined, auroc, np.nan),
    }


def positive_metrics(
    labels: np.ndarray, probabilities: np.ndarray, confusion: np.ndarray, classes: list[str], positive: str
) -> dict[str, Any]:
    index = classes.index(positive)
    truth, score = labels == index, probabilities[:, index]
    by_class = confusion_metrics(confusion, classes)
    return {
        "label": positive,
        "rows": int(truth.sum()),
        "alerts": int(confusion[:, index].sum()),
        "recall": by_class["recall_by_class"][positive],
        "precision": by_class["precision_by_class"][positive],
        "f1": by_class["f1_by_class"][positive],
        **ranking_curve_metrics(truth, score),
    }


def ranking_curve_metrics(truth: np.ndarray, score: np.ndarray) -> dict[str, Any]:
    """How well a score ranks the rows of `truth` (N,) bool before the others; None where there are not both."""
    from sklearn.metrics import precision_recall_curve

    names = (*RANKING_METRICS, "recall_at_precision", "precision_at_recall", "recall_at_share")
    if not truth.any() or truth.all():
        return dict.fromkeys(names)
    precision, recall, _ = precision_recall_curve(truth, score)
    counts = {share: max(1, int(np.ceil(share * len(truth)))) for share in ALERT_SHARES}
    values = (
        *_ranking(truth, score).values(),
        {str(least): float(recall[precision >= least].max()) for least in OPERATING_POINTS},
        {str(least): float(precision[recall >= least].max()) for least in OPERATING_POINTS},
        {str(share): _recall_of_highest(truth, score, count) for share, count in counts.items()},
    )
    return dict(zip(names, values, strict=True))


def _recall_of_highest(truth: np.ndarray, score: np.ndarray, count: int) -> float:
    """The share of `truth` that is among the `count` highest scores; of equal ones, as many as fit in the mean."""
    last = -np.partition(-score, count - 1)[count - 1]
    above, level = score > last, score == last
    found = truth[above].sum() + (count - above.sum()) * truth[level].mean()
    return float(found / truth.sum())


def softmax(logits: np.ndarray) -> np.ndarray:
    """(N, C) logits → (N, C) float64 probabilities."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)
