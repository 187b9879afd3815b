"""Decision thresholds with guarantees on new data, from scores and labels of held-out rows.

The guarantees are exact and distribution-free. A threshold is set at the score of the k-th of n rows. Of m new rows of
the same kind, the number at or above it is then beta-binomial with parameters (m, k, n - k + 1), for any distribution
of scores (a fact of order statistics). Ties only make it safer. A guarantee is for new data with at least as many such
rows, that is for every m from n on. Among all m that allow the same number of missed rows, the largest is the hardest
to keep. The probability at the first such m and that of the whole population bound all others
(`tests/evaluation/test_thresholds.py` compares with every m).

Scores are logit margins. They stay distinct where probabilities round to 1. `choose_decision` calls the
function of the configured rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CANDIDATES = 20  # thresholds that min_precision considers
LOGIT_NOISE = 1e-4  # difference of one row's logits between PyTorch and ONNX Runtime, or between batches


@dataclass(frozen=True)
class Threshold:
    """Decision threshold on the logit margin. At 0 the most probable label is predicted.

    `backed`: whether the guarantee holds. `rows`: held-out rows it rests on. `needed`: how many would be enough where
    they are too few, None if unknown.
    """

    value: float
    backed: bool
    rows: int
    needed: int | None = None


def threshold_for_recall(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Threshold with the fewest false alerts that keeps the recall at `target` in new data.

    `scores`: (N,). `truth`: (N,) bool, whether a row has the label. Of thresholds with equally many false alerts the
    lowest is taken: recall beyond the target is welcome where it costs nothing.

    >>> scores = np.arange(100.0)
    >>> threshold_for_recall(scores, scores >= 40, target=0.8, confidence=0.95)
    Threshold(value=39.5, backed=True, rows=60, needed=None)
    >>> threshold_for_recall(scores[95:], scores[95:] >= 40, target=0.8, confidence=0.95).needed
    20
    """
    ranked = -np.sort(-scores[truth])
    count = len(ranked)
    hits = _first(count, lambda k: recall_holds(k, count, target, confidence))
    if hits is not None:
        # The hit of rank `hits` is the highest threshold that keeps the recall, so it has the fewest false alerts.
        return Threshold(_lower_for_free(ranked, scores[~truth], float(ranked[hits - 1])), True, count)
    # Not backed: the most careful threshold, which finds every held-out row.
    lowest = float(ranked[-1]) - LOGIT_NOISE if count else 0.0
    return Threshold(lowest, False, count, _rows_needed(lambda n: recall_holds(n, n, target, confidence)))


def _lower_for_free(ranked: np.ndarray, others: np.ndarray, highest: float) -> float:
    """The lowest threshold that adds none of the `others` to those at or above `highest`."""
    below = others[others < highest]
    if not len(below):
        return float(ranked.min()) - LOGIT_NOISE
    last = float(ranked[ranked > below.max()].min())
    return min((last + float(below.max())) / 2, last - LOGIT_NOISE)


def recall_holds(hits: int, rows: int, target: float, confidence: float) -> bool:
    """True if `rows` or more new rows keep the recall, where `hits` of as many held-out rows are hits."""
    if not hits or _probability_of_share(target, hits, rows) < confidence:
        return False
    new_rows = _hardest_count(rows, 1 - target)
    return _at_or_above(hits, rows, new_rows, _ceil(target * new_rows)) >= confidence


def _probability_of_share(share: float, rank: int, rows: int) -> float:
    """Probability that more than a `share` of the population reaches the score of rank `rank` among `rows` rows."""
    from scipy.special import betainc

    return float(1 - betainc(rank, rows - rank + 1, share))


def _hardest_count(rows: int, share: float) -> int:
    """The largest number of rows that allows no more exceptions than `rows` do, when a `share` may be exceptions."""
    allowed = int(share * rows + 1e-9)
    # One row more would allow one exception more, which is easier to keep.
    return max(rows, _ceil((allowed + 1) / share) - 1)


def threshold_for_alerts(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The lowest threshold that alerts on at most a share `target` of new rows.

    Arguments as in `threshold_for_recall`.
    """
    ranked = -np.sort(-scores)
    count = len(ranked)
    # Alerts lie above the k-th score, so there are at most as many as new rows at or above it.
    first_failure = _first(count, lambda k: not alerts_hold(k, count, target, confidence))
    alerts = (first_failure or count + 1) - 1
    if alerts < 1:
        needed = _rows_needed(lambda n: alerts_hold(1, n, target, confidence))
        return Threshold(float(ranked[0]) + LOGIT_NOISE if count else 0.0, False, count, needed)
    return Threshold(float(ranked[alerts - 1]) + LOGIT_NOISE, True, count)


def alerts_hold(alerts: int, rows: int, target: float, confidence: float) -> bool:
    """True if at most a share `target` of `rows` or more new rows is alerted on, where `alerts` of as many are."""
    if _probability_of_share(target, alerts, rows) > 1 - confidence:
        return False
    new_rows = _hardest_count(rows, target)
    return _at_or_above(alerts, rows, new_rows, int(target * new_rows + 1e-9) + 1) <= 1 - confidence


def threshold_for_precision(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Threshold with the highest recall whose precision stays at `target` in new data with as many alerts or more.

    Tests `CANDIDATES` thresholds, each at its share of the risk (Bonferroni), by Fisher's exact test: were new data to
    fall short, the held-out rows would have to be a surprise. Arguments as in `threshold_for_recall`.
    """
    ranked = -np.sort(-scores[truth])
    ranks = np.unique(np.ceil(np.arange(1, CANDIDATES + 1) / CANDIDATES * len(ranked)).astype(int))
    values = [float(ranked[rank - 1]) - LOGIT_NOISE for rank in ranks.tolist() if rank]
    counts = [(int((truth & (scores >= value)).sum()), int((scores >= value).sum())) for value in values]
    # From the lowest threshold up: the first that holds has the highest recall.
    for value, (hits, alerts) in zip(values[::-1], counts[::-1], strict=True):
        if precision_holds(hits, alerts, target, confidence):
            return Threshold(value, True, alerts)
    needed = _rows_needed(lambda n: precision_holds(n, n, target, confidence))
    if not counts:
        return Threshold(0.0, False, 0, needed)
    # Not backed: the candidate with the highest observed precision.
    best = int(np.argmax([hits / alerts for hits, alerts in counts]))
    return Threshold(values[best], False, counts[best][1], needed)


def precision_holds(hits: int, alerts: int, target: float, confidence: float) -> bool:
    """True if `alerts` or more new alerts keep the precision, where `hits` of as many held-out alerts are right."""
    from scipy.stats import hypergeom

    risk = (1 - confidence) / CANDIDATES
    # The binomial probability of as many hits where only a share `target` of the population is.
    if not hits or 1 - _probability_of_share(target, hits, alerts) > risk:
        return False
    new_alerts = _hardest_count(alerts, 1 - target)
    short = _ceil(target * new_alerts) - 1
    return bool(hypergeom.cdf(short, alerts + new_alerts, hits + short, new_alerts) <= risk)


def threshold_of_least_cost(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Threshold with the lowest cost, where a missed row of `truth` costs `target` times as much as a false alert."""
    if not len(scores):
        return Threshold(0.0, False, 0)
    order = np.argsort(-scores, kind="stable")
    ranked, is_hit = scores[order], truth[order]
    missed = is_hit.sum() - np.concatenate([[0], np.cumsum(is_hit)])
    costs = target * missed + np.concatenate([[0.0], np.cumsum(~is_hit)])
    costs[1:-1][ranked[:-1] - ranked[1:] <= LOGIT_NOISE / 10] = np.inf  # no threshold separates such scores
    alerts = int(costs.argmin())
    if alerts in (0, len(ranked)):
        value = ranked[0] + LOGIT_NOISE if alerts == 0 else ranked[-1] - LOGIT_NOISE
    else:
        value = (ranked[alerts - 1] + ranked[alerts]) / 2
    return Threshold(float(value), True, len(scores))


THRESHOLDS = {
    "min_recall": threshold_for_recall,
    "min_precision": threshold_for_precision,
    "max_alerts": threshold_for_alerts,
    "cost": threshold_of_least_cost,
}

HOLDS = {"min_recall": recall_holds, "min_precision": precision_holds}


def _at_or_above(rank: int, rows: int, new_rows: int, least: int) -> float:
    """Probability that at least `least` of `new_rows` rows reach the score of rank `rank` among `rows` rows.

    They do if at least `least` of the `least + rank - 1` highest rows of both kinds are new.
    """
    from scipy.stats import hypergeom

    if least <= 0:
        return 1.0
    if least > new_rows or rank < 1:
        return 0.0
    return float(hypergeom.sf(least - 1, rows + new_rows, new_rows, least + rank - 1))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest of 1 … `count` for which a monotone condition holds, by bisection. None if it never holds."""
    if count < 1 or not holds(count):
        return None
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _rows_needed(holds: Callable[[int], bool], most: int = 100_000) -> int | None:
    """About the smallest number of rows for which a condition holds, within 2 %."""
    count = 1
    while count <= most:
        if holds(count):
            return count
        count += max(1, count // 50)
    return None


def _ceil(rows: float) -> int:
    """The smallest whole number of rows that reaches `rows`, rounding errors aside."""
    return int(np.ceil(rows - 1e-9))
