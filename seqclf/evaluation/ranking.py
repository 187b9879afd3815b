"""Average precision and AUROC, which measure how well a score ranks the rows of a class at all thresholds."""

from __future__ import annotations

import numpy as np

from seqclf.evaluation.design_effect import or_one, or_ones

RANKING_METRICS = ("average_precision", "auroc")
TINY = np.finfo(np.float64).tiny  # smaller numbers may be flushed to 0
SURE = 1e-6  # below this sum of the other probabilities, 1 - p has lost digits


def ranking_scores(probabilities: np.ndarray) -> np.ndarray:
    """Return scores (N, C) that rank rows as their margins do: -log(1 - p) for probabilities p (N, C).

    Above a margin of 37 every p rounds to 1; the other probabilities tell 1 - p up to a margin of 700.
    """
    others, rows, top = probabilities.astype(np.float64), np.arange(len(probabilities)), probabilities.argmax(axis=1)
    scores = -np.log1p(-np.minimum(others, 1 - 1e-16))
    others[rows, top] = 0.0
    rest = others.sum(axis=1)
    scores[rows, top] = np.where(rest < SURE, -np.log(np.maximum(rest, TINY)), scores[rows, top])
    return scores


def ranking_metrics(
    labels: np.ndarray, probabilities: np.ndarray, positive: int | None = None, weights: np.ndarray | None = None
) -> dict[str, float | None]:
    """Return average precision and AUROC of the class `positive`, or their means over all classes with rows.

    Each class is ranked against all others. Both are None if the class, or all others, have no rows. `weights`: (N,) of
    the rows, None for equal ones.
    """
    present = np.unique(labels if weights is None else labels[weights > 0]).tolist()
    codes = present if positive is None else [code for code in present if code == positive]
    if len(present) < 2 or not codes:
        return dict.fromkeys(RANKING_METRICS)
    scores = ranking_scores(probabilities)
    by_class = [_average_precision_and_auroc(labels == code, scores[:, code], weights) for code in codes]
    return {name: float(np.mean([metrics[name] for metrics in by_class])) for name in RANKING_METRICS}


def ranking_counts(
    truth: np.ndarray, group: np.ndarray, group_count: int, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return (2, G) rows or weights in each group, `truth` False first. `group`: (N,) number of each row's group."""
    weights = or_ones(weights, len(truth))
    counts = [np.bincount(group[truth == side], weights[truth == side], group_count) for side in (False, True)]
    return np.stack(counts).astype(np.float64)


def ranking_from_counts(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Return average precision (R,) and AUROC (R,) of counts (R, 2, G), as of `ranking_counts`.

    Groups of equal scores are sorted by descending score. NaN without positive or without negative rows.
    """
    negatives, positives = counts[:, 0], counts[:, 1]
    true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
    positive_total, negative_total = true_alerts[:, -1:], false_alerts[:, -1:]
    is_defined = ((positive_total > 0) & (negative_total > 0))[:, 0]
    precision = true_alerts / or_one(true_alerts + false_alerts)
    # `pairs`: number of pairs in which the positive row ranks above the negative row. A tie counts half.
    pairs = (negatives * (true_alerts - positives / 2)).sum(axis=1)
    average_precision = (positives * precision).sum(axis=1) / or_one(positive_total)[:, 0]
    auroc = pairs / or_one(positive_total * negative_total)[:, 0]
    return {
        "average_precision": np.where(is_defined, average_precision, np.nan),
        "auroc": np.where(is_defined, auroc, np.nan),
    }


def _average_precision_and_auroc(truth: np.ndarray, score: np.ndarray, weights: np.ndarray | None) -> dict[str, float]:
    # The results equal the results of scikit-learn. With a few thousand rows, this code is ten times as fast as
    # scikit-learn, and intervals call it thousands of times.
    levels, level_of_row = np.unique(-score, return_inverse=True)
    metrics = ranking_from_counts(ranking_counts(truth, level_of_row, len(levels), weights)[None])
    return {name: float(metrics[name][0]) for name in RANKING_METRICS}


def recall_of_highest(truth: np.ndarray, score: np.ndarray, count: int) -> float:
    """Return the recall if the `count` rows with the highest scores are alerts. Ties at the last rank share alerts."""
    # The order of ties is arbitrary. Averaging over the ties gives the expected recall in a random order.
    threshold = -np.partition(-score, count - 1)[count - 1]
    above, at_threshold = score > threshold, score == threshold
    true_alerts = truth[above].sum() + (count - above.sum()) * truth[at_threshold].mean()
    return float(true_alerts / truth.sum())
