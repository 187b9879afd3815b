"""Names and values of the scores that loggers show: `macro_recall` over all classes, `recall_of_LABEL` of one.

Lightning's names, which callbacks monitor, stay as they are: `validation/recall` and `validation/recall/LABEL`.
"""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.evaluation.metrics import MAIN_METRICS, ClassificationMetrics
from seqclf.evaluation.ranking import RANKING_METRICS

SPLITS = ("train", "validation", "test")
MACRO = ("recall", "precision", "f1")  # means over classes
MOST_CLASSES = 50  # of which each has a score of its own


def shown_name(name: str) -> str:
    """Return the name that a logger shows for one of Lightning's.

    >>> shown_name("validation/recall"), shown_name("validation/recall/yes"), shown_name("system/step_ms")
    ('validation/macro_recall', 'validation/recall_of_yes', 'system/step_ms')
    """
    split, _, metric = name.partition("/")
    if split not in SPLITS:
        return name
    if metric in MACRO:
        return f"{split}/macro_{metric}"
    kind, slash, label = metric.partition("/")
    return f"{split}/{kind}_of_{label}" if slash and kind in MACRO else name


def shown_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics under the names that a logger shows."""
    return {shown_name(name): value for name, value in metrics.items()}


def main_scores(metrics: ClassificationMetrics) -> dict[str, float]:
    """Return loss, accuracy and the macro means of a split by the name that a logger shows."""
    return {f"macro_{name}" if name in MACRO else name: getattr(metrics, name) for name in MAIN_METRICS}


def shown_scores(metrics: ClassificationMetrics) -> dict[str, float]:
    """Return the scores of a split by name: each once, and none that is not defined.

    Average precision and AUROC are those of the positive label, or means over more than two classes.
    """
    positive = metrics.positive
    scores: dict[str, float | None] = {**main_scores(metrics), "mcc": metrics.mcc, "ece": metrics.ece}
    scores |= {name: getattr(positive or metrics, name) for name in RANKING_METRICS}
    if len(metrics.recall_by_class) <= MOST_CLASSES:
        scores |= {f"recall_of_{label}": recall for label, recall in metrics.recall_by_class.items()}
    if positive is not None:
        scores |= {f"precision_of_{positive.label}": positive.precision, f"f1_of_{positive.label}": positive.f1}
    return {name: float(value) for name, value in scores.items() if value is not None}
