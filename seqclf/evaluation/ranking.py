"""Average precision and AUROC: how well a score ranks the rows of a class, at any threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.system.json_result import JsonResult

RANKING_METRICS = ("average_precision", "auroc")
OPERATING_POINTS = (0.5, 0.8, 0.9, 0.95)  # precisions (recalls) at which the best recall (precision) is reported
ALERT_SHARES = (0.01, 0.05, 0.1)


@dataclass(frozen=True, kw_only=True)
class RankingCurve(JsonResult):
    """Ranking metrics of one class. All are None unless there are rows of the class and rows of others.

    `recall_at_precision["0.9"]` is the highest recall at a precision of 0.9 or more, `precision_at_recall` the reverse,
    and `recall_at_share["0.01"]` the recall when the 1 % of rows with the highest scores are alerts.
    """

    average_precision: float | None = None
    auroc: float | None = None
    recall_at_precision: dict[str, float] | None = None
    precision_at_recall: dict[str, float] | None = None
    recall_at_share: dict[str, float] | None = None


def ranking_curve(truth: np.ndarray, score: np.ndarray) -> RankingCurve:
    """Ranking metrics of `score` (N,) for the rows of `truth` (N,) bool.

    >>> curve = ranking_curve(np.array([False, False, True, True]), np.array([0.1, 0.6, 0.4, 0.9]))
    >>> curve.auroc, curve.recall_at_precision["0.9"]
    (0.75, 0.5)
    """
    from sklearn.metrics import precision_recall_curve

    if not truth.any() or truth.all():
        return RankingCurve()
    precision, recall, _ = precision_recall_curve(truth, score)
    alert_counts = {share: max(1, int(np.ceil(share * len(truth)))) for share in ALERT_SHARES}
    return RankingCurve(
        **_average_precision_and_auroc(truth, score),
        recall_at_precision={str(p): float(recall[precision >= p].max()) for p in OPERATING_POINTS},
        precision_at_recall={str(r): float(precision[recall >= r].max()) for r in OPERATING_POINTS},
        recall_at_share={str(share): recall_of_highest(truth, score, count) for share, count in alert_counts.items()},
    )


def ranking_metrics(
    labels: np.ndarray, probabilities: np.ndarray, positive: int | None = None
) -> dict[str, float | None]:
    """Average precision and AUROC of the class `positive`, or their means over classes, each against the rest.

    Classes without rows are left out of the means. Both are None where no class has rows as well as other rows.
    """
    present = np.unique(labels).tolist()
    codes = present if positive is None else [code for code in present if code == positive]
    if len(present) < 2 or not codes:
        return dict.fromkeys(RANKING_METRICS)
    by_class = [_average_precision_and_auroc(labels == code, probabilities[:, code]) for code in codes]
    return {name: float(np.mean([metrics[name] for metrics in by_class])) for name in RANKING_METRICS}


def ranking_counts(truth: np.ndarray, group: np.ndarray, group_count: int) -> np.ndarray:
    """(2, G) counts of rows by group: those that are not `truth`, then those that are. `group`: (N,) int64."""
    counts = [np.bincount(group[truth == side], minlength=group_count) for side in (False, True)]
    return np.stack(counts).astype(np.float64)


def ranking_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Average precision and AUROC, (R,) each, of (R, 2, G) counts (see `ranking_counts`).

    Groups come by descending score, and rows of a group are ties. NaN where one kind of rows is missing.
    """
    negatives, positives = counts[:, 0], counts[:, 1]
    true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
    positive_total, negative_total = true_alerts[:, -1:], false_alerts[:, -1:]
    is_defined = ((positive_total > 0) & (negative_total > 0))[:, 0]
    precision = true_alerts / np.maximum(true_alerts + false_alerts, 1)
    # Pairs of a positive above a negative. A tie counts half.
    pairs = (negatives * (true_alerts - positives / 2)).sum(axis=1)
    average_precision = (positives * precision).sum(axis=1) / np.maximum(positive_total, 1)[:, 0]
    auroc = pairs / np.maximum(positive_total * negative_total, 1)[:, 0]
    return {
        "average_precision": np.where(is_defined, average_precision, np.nan),
        "auroc": np.where(is_defined, auroc, np.nan),
    }


def _average_precision_and_auroc(truth: np.ndarray, score: np.ndarray) -> dict[str, float]:
    # Same values as scikit-learn's, ten times as fast for some thousand rows: intervals draw thousands of them.
    levels, level_of_row = np.unique(-score, return_inverse=True)
    metrics = ranking_from_counts(ranking_counts(truth, level_of_row, len(levels))[None])
    return {name: float(metrics[name][0]) for name in RANKING_METRICS}


def recall_of_highest(truth: np.ndarray, score: np.ndarray, count: int) -> float:
    """Recall when the `count` highest scores are alerts. Ties at the last rank count with their average."""
    # The order of ties is arbitrary. Their average is the expected recall of a random order.
    threshold = -np.partition(-score, count - 1)[count - 1]
    above, at_threshold = score > threshold, score == threshold
    true_alerts = truth[above].sum() + (count - above.sum()) * truth[at_threshold].mean()
    return float(true_alerts / truth.sum())
