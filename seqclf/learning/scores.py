"""Labels and probabilities → the numbers of a verdict. Pure numpy; the trainer and the bundle share it, so a metric
means the same on both sides of an export.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MAIN = ("loss", "accuracy", "recall", "precision", "f1")


def confusion_matrix(labels: np.ndarray, predicted: np.ndarray, num_classes: int) -> np.ndarray:
    """(C, C) counts: true class by row, predicted class by column."""
    return np.bincount(labels * num_classes + predicted, minlength=num_classes**2).reshape(num_classes, num_classes)


def confusion_scores(confusion: np.ndarray, classes: list[str]) -> dict[str, Any]:
    """Micro accuracy, macro recall, precision and F1, and each per class.

    As in scikit-learn and torchmetrics, the macro mean is over classes that occur as truth or as prediction, and a
    ratio without a denominator counts as 0; per class it is None where a class has no rows.
    """
    right = np.diag(confusion).astype(np.float64)
    support, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    recall = right / np.maximum(support, 1)
    precision = right / np.maximum(predicted, 1)
    f1 = 2 * right / np.maximum(support + predicted, 1)
    seen = (support + predicted) > 0
    means = {"recall": recall, "precision": precision, "f1": f1}
    return {
        "accuracy": float(right.sum() / max(1, support.sum())),
        **{name: float(values[seen].mean()) if seen.any() else 0.0 for name, values in means.items()},
        "recall_by_class": _by_class(classes, recall, support > 0),
        "precision_by_class": _by_class(classes, precision, predicted > 0),
        "f1_by_class": _by_class(classes, f1, seen),
        "support_by_class": {name: int(count) for name, count in zip(classes, support, strict=True)},
    }


def _by_class(classes: list[str], values: np.ndarray, known: np.ndarray) -> dict[str, float | None]:
    rows = zip(classes, values, known, strict=True)
    return {name: float(value) if is_known else None for name, value, is_known in rows}


def scores(labels: np.ndarray, probabilities: np.ndarray, classes: list[str], positive: str | None) -> dict[str, Any]:
    """All scores of one split. `labels`: (N,) int64; `probabilities`: (N, C).

    `loss` is the mean of -log p(label). With `positive`, a block of its own with average precision and AUROC.
    """
    labels = labels.astype(np.int64)
    chosen = np.clip(probabilities[np.arange(len(labels)), labels].astype(np.float64), 1e-12, None)
    confusion = confusion_matrix(labels, probabilities.argmax(axis=1), len(classes))
    found = {"rows": len(labels), "loss": float(-np.log(chosen).mean()) + 0.0, **confusion_scores(confusion, classes)}
    found["confusion"] = confusion.tolist()
    if positive is not None:
        found["positive"] = _positive_scores(labels, probabilities, confusion, classes, positive)
    return found


def _positive_scores(
    labels: np.ndarray, probabilities: np.ndarray, confusion: np.ndarray, classes: list[str], positive: str
) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score, roc_auc_score  # heavy; only two-class data needs it

    index = classes.index(positive)
    truth, score = labels == index, probabilities[:, index]
    by_class = confusion_scores(confusion, classes)
    both = bool(truth.any() and not truth.all())
    return {
        "label": positive,
        "rows": int(truth.sum()),
        "alerts": int(confusion[:, index].sum()),
        "recall": by_class["recall_by_class"][positive],
        "precision": by_class["precision_by_class"][positive],
        "f1": by_class["f1_by_class"][positive],
        "average_precision": float(average_precision_score(truth, score)) if both else None,
        "auroc": float(roc_auc_score(truth, score)) if both else None,
    }


def softmax(logits: np.ndarray) -> np.ndarray:
    """(N, C) logits → (N, C) float64 probabilities."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)
