"""Average precision and AUROC, which measure how well a score ranks the rows of a class at all thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.system.json_result import JsonResult

RANKING_METRICS = ("average_precision", "auroc")
# The highest recall is reported at each of these precisions, and the highest precision is reported at each of these
# recalls.
OPERATING_POINTS = (0.5, 0.8, 0.9, 0.95)
ALERT_SHARES = (0.01, 0.05, 0.1)  # the recall is reported if these fractions of the rows are alerts


@dataclass(frozen=True, kw_only=True)
class RankingCurve(JsonResult):
    """Ranking metrics of one class. All metrics are None if no row or every row belongs to the class.

    `recall_at_precision["0.9"]` is the highest recall at a precision of at least 0.9. `precision_at_recall["0.9"]` is
    the highest precision at a recall of at least 0.9. `recall_at_share["0.01"]` is the recall if the 1 % of rows with
    the highest scores are alerts.
    """

    average_precision: float | None = None
    auroc: float | None = None
    recall_at_precision: dict[str, float] | None = None
    precision_at_recall: dict[str, float] | None = None
    recall_at_share: dict[str, float] | None = None


def ranking_curve(truth: np.ndarray, score: np.ndarray) -> RankingCurve:
    """Return the ranking metrics of `score` (N,). `truth`: (N,) bool, True for rows of the class.

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
    """Return average precision and AUROC of the class `positive`, or their means over all classes if it is None.

    Each class is ranked against all other classes. Classes without rows are left out of the means. Both metrics are
    None if the class has no rows, or if no other class has rows.
    """
    present = np.unique(labels).tolist()
    codes = present if positive is None else [code for code in present if code == positive]
    if len(present) < 2 or not codes:
        return dict.fromkeys(RANKING_METRICS)
    by_class = [_average_precision_and_auroc(labels == code, probabilities[:, code]) for code in codes]
    return {name: float(np.mean([metrics[name] for metrics in by_class])) for name in RANKING_METRICS}


def ranking_counts(truth: np.ndarray, group: np.ndarray, group_count: int) -> np.ndarray:
    """Return (2, G) numbers of rows in each group: rows with `truth` False first, then rows with `truth` True.

    `group`: (N,) number of each row's group.
    """
    counts = [np.bincount(group[truth == side], minlength=group_count) for side in (False, True)]
    return np.stack(counts).astype(np.float64)


def ranking_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return average precision (R,) and AUROC (R,) of counts (R, 2, G) in the format of `ranking_counts`.

    The groups are sorted by descending score, and all rows of a group have the same score. A metric is NaN if there are
    no positive rows or no negative rows.
    """
    negatives, positives = counts[:, 0], counts[:, 1]
    true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
    positive_total, negative_total = true_alerts[:, -1:], false_alerts[:, -1:]
    is_defined = ((positive_total > 0) & (negative_total > 0))[:, 0]
    precision = true_alerts / np.maximum(true_alerts + false_alerts, 1)
    # `pairs`: number of pairs in which the positive row ranks above the negative row. A tie counts half.
    pairs = (negatives * (true_alerts - positives / 2)).sum(axis=1)
    average_precision = (positives * precision).sum(axis=1) / np.maximum(positive_total, 1)[:, 0]
    auroc = pairs / np.maximum(positive_total * negative_total, 1)[:, 0]
    return {
        "average_precision": np.where(is_defined, average_precision, np.nan),
        "auroc": np.where(is_defined, auroc, np.nan),
    }


def _average_precision_and_auroc(truth: np.ndarray, score: np.ndarray) -> dict[str, float]:
    # The results equal the results of scikit-learn. With a few thousand rows, this code is ten times as fast as
    # scikit-learn, and intervals call it thousands of times.
    levels, level_of_row = np.unique(-score, return_inverse=True)
    metrics = ranking_from_counts(ranking_counts(truth, level_of_row, len(levels))[None])
    return {name: float(metrics[name][0]) for name in RANKING_METRICS}


def recall_of_highest(truth: np.ndarray, score: np.ndarray, count: int) -> float:
    """Return the recall if the `count` rows with the highest scores are alerts.

    If several rows tie at the last rank, each of these rows counts as the same fraction of an alert.
    """
    # The order of ties is arbitrary. Averaging over the ties gives the expected recall in a random order.
    threshold = -np.partition(-score, count - 1)[count - 1]
    above, at_threshold = score > threshold, score == threshold
    true_alerts = truth[above].sum() + (count - above.sum()) * truth[at_threshold].mean()
    return float(true_alerts / truth.sum())
