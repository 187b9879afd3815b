"""Decision thresholds with guarantees on new data, from scores and labels of held-out rows.

The guarantees are exact and hold for any distribution of scores. A threshold is set at the k-th highest score of n
held-out rows. Take m new rows from the same distribution. The number of new rows at or above the threshold is then
beta-binomial with the parameters (m, k, n - k + 1), which is a fact of order statistics. Ties only make a guarantee
safer.

A guarantee covers new data with at least as many rows as were held out, so it covers every m ≥ n. Several m allow the
same number of missed rows, and the guarantee is hardest to keep for the largest of these m. It is therefore enough to
check two cases: the first such m, and the whole population. The probabilities of these two cases bound the
probabilities for all other m (`tests/evaluation/test_thresholds.py` compares every m).

Scores are logit margins (differences of logits), because margins stay distinct where probabilities round to 1.
`choose_decision` calls the function that belongs to the configured rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CANDIDATES = 20  # number of thresholds that are tested for the rule min_precision
LOGIT_NOISE = 1e-4  # largest difference of a logit between PyTorch and ONNX Runtime, or between two batches


@dataclass(frozen=True)
class Threshold:
    """Decision threshold on the logit margin. At a threshold of 0, the most probable label is predicted.

    `backed`: True if the guarantee holds. `rows`: number of held-out rows on which the guarantee is based. `needed`:
    number of held-out rows that would be enough; None if `rows` are enough, or if the number is unknown.
    """

    value: float
    backed: bool
    rows: int
    needed: int | None = None


def threshold_for_recall(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Return the threshold with the fewest false alerts that keeps a recall of at least `target` on new data.

    `scores`: (N,) logit margins. `truth`: (N,) bool, True for rows with the label. Among thresholds with the same
    number of false alerts, the lowest threshold is returned, because it has the highest recall.

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
        # The score of rank `hits` is the highest threshold that keeps the recall, so this threshold has the fewest
        # false alerts.
        return Threshold(_lower_for_free(ranked, scores[~truth], float(ranked[hits - 1])), True, count)
    # The rows are too few to back the target. The most cautious threshold finds every held-out row of the label.
    lowest = float(ranked[-1]) - LOGIT_NOISE if count else 0.0
    return Threshold(lowest, False, count, _rows_needed(lambda n: recall_holds(n, n, target, confidence)))


def _lower_for_free(ranked: np.ndarray, others: np.ndarray, highest: float) -> float:
    """Return the lowest threshold with the same false alerts as the threshold `highest`.

    `ranked`: scores of rows with the label. `others`: scores of other rows.
    """
    below = others[others < highest]
    if not len(below):
        return float(ranked.min()) - LOGIT_NOISE
    last = float(ranked[ranked > below.max()].min())
    return min((last + float(below.max())) / 2, last - LOGIT_NOISE)


def recall_holds(hits: int, rows: int, target: float, confidence: float) -> bool:
    """Return True if a recall of at least `target` holds with `confidence` on any sample of at least `rows` positives.

    `hits`: number of held-out positives (rows with the label) that are found, out of `rows` held-out positives.
    """
    if not hits or _probability_of_share(target, hits, rows) < confidence:
        return False
    new_rows = _hardest_count(rows, 1 - target)
    return _at_or_above(hits, rows, new_rows, _ceil(target * new_rows)) >= confidence


def _probability_of_share(share: float, rank: int, rows: int) -> float:
    """Return the probability that more than a fraction `share` of the population reaches the score of one row.

    This row has the rank `rank` among the `rows` rows of the sample.
    """
    from scipy.special import betainc

    return float(1 - betainc(rank, rows - rank + 1, share))


def _hardest_count(rows: int, share: float) -> int:
    """Return the largest number of rows that allows no more exceptions than `rows` rows allow.

    `share`: fraction of rows that may be exceptions.
    """
    allowed = int(share * rows + 1e-9)
    # With more rows than this, one more exception would be allowed, which makes the target easier to keep.
    return max(rows, _ceil((allowed + 1) / share) - 1)


def threshold_for_alerts(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Return the lowest threshold at which at most a fraction `target` of new rows are alerts.

    The arguments have the same meaning as in `threshold_for_recall`.
    """
    ranked = -np.sort(-scores)
    count = len(ranked)
    # An alert scores above the k-th score, so the number of alerts is at most the number of new rows at or above this
    # score.
    first_failure = _first(count, lambda k: not alerts_hold(k, count, target, confidence))
    alerts = (first_failure or count + 1) - 1
    if alerts < 1:
        needed = _rows_needed(lambda n: alerts_hold(1, n, target, confidence))
        return Threshold(float(ranked[0]) + LOGIT_NOISE if count else 0.0, False, count, needed)
    return Threshold(float(ranked[alerts - 1]) + LOGIT_NOISE, True, count)


def alerts_hold(alerts: int, rows: int, target: float, confidence: float) -> bool:
    """Return True if the fraction of alerts is at most `target`, with `confidence`, on at least `rows` new rows.

    `alerts`: number of alerts among `rows` held-out rows.
    """
    if _probability_of_share(target, alerts, rows) > 1 - confidence:
        return False
    new_rows = _hardest_count(rows, target)
    return _at_or_above(alerts, rows, new_rows, int(target * new_rows + 1e-9) + 1) <= 1 - confidence


def threshold_for_precision(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Return the threshold of highest recall at which the precision on new data is at least `target`.

    The guarantee covers new data with at least as many alerts as the held-out rows. Fisher's exact test is applied to
    `CANDIDATES` thresholds, and the risk is divided among these tests (Bonferroni). A threshold passes the test if its
    held-out precision would be very unlikely for new data with a precision below the target. The arguments have the
    same meaning as in `threshold_for_recall`.
    """
    ranked = -np.sort(-scores[truth])
    ranks = np.unique(np.ceil(np.arange(1, CANDIDATES + 1) / CANDIDATES * len(ranked)).astype(int))
    values = [float(ranked[rank - 1]) - LOGIT_NOISE for rank in ranks.tolist() if rank]
    counts = [(int((truth & (scores >= value)).sum()), int((scores >= value).sum())) for value in values]
    # The thresholds are tested in ascending order. The first threshold that passes has the highest recall.
    for value, (hits, alerts) in zip(values[::-1], counts[::-1], strict=True):
        if precision_holds(hits, alerts, target, confidence):
            return Threshold(value, True, alerts)
    needed = _rows_needed(lambda n: precision_holds(n, n, target, confidence))
    if not counts:
        return Threshold(0.0, False, 0, needed)
    # No threshold passes the test. Return the candidate with the highest observed precision.
    best = int(np.argmax([hits / alerts for hits, alerts in counts]))
    return Threshold(values[best], False, counts[best][1], needed)


def precision_holds(hits: int, alerts: int, target: float, confidence: float) -> bool:
    """Return True if a precision of at least `target` holds with `confidence` on at least `alerts` new alerts.

    `hits`: number of correct alerts among `alerts` held-out alerts.
    """
    from scipy.stats import hypergeom

    risk = (1 - confidence) / CANDIDATES
    # Probability of at least `hits` hits (binomial) if only a fraction `target` of the population are hits.
    if not hits or 1 - _probability_of_share(target, hits, alerts) > risk:
        return False
    new_alerts = _hardest_count(alerts, 1 - target)
    short = _ceil(target * new_alerts) - 1
    return bool(hypergeom.cdf(short, alerts + new_alerts, hits + short, new_alerts) <= risk)


def threshold_of_least_cost(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """Return the threshold with the lowest total cost.

    A missed row (`truth` is True) costs `target` times as much as a false alert.
    """
    if not len(scores):
        return Threshold(0.0, False, 0)
    order = np.argsort(-scores, kind="stable")
    ranked, is_hit = scores[order], truth[order]
    missed = is_hit.sum() - np.concatenate([[0], np.cumsum(is_hit)])
    costs = target * missed + np.concatenate([[0.0], np.cumsum(~is_hit)])
    costs[1:-1][ranked[:-1] - ranked[1:] <= LOGIT_NOISE / 10] = np.inf  # no threshold fits between such close scores
    alerts = int(costs.argmin())
    if alerts in (0, len(ranked)):
        value = ranked[0] + LOGIT_NOISE if alerts == 0 else ranked[-1] - LOGIT_NOISE
    else:
        value = (ranked[alerts - 1] + ranked[alerts]) / 2
    return Threshold(float(value), True, len(scores))


def threshold_reached(rule: str, scores: np.ndarray, truth: np.ndarray, target: float) -> float:
    """Return the threshold at which the rows themselves meet a target, of which new rows may fall short.

    >>> threshold_reached("min_recall", np.arange(5.0), np.arange(5) % 2 > 0, target=0.5)
    2.5
    """
    ranked = -np.sort(-(scores if rule == "max_alerts" else scores[truth]))
    if not len(ranked):
        return 0.0
    if rule == "min_recall":
        return _lower_for_free(ranked, scores[~truth], float(ranked[_ceil(target * len(ranked)) - 1]))
    if rule == "max_alerts":
        alerts = int(target * len(ranked) + 1e-9)
        return float(ranked[alerts - 1]) - LOGIT_NOISE if alerts else float(ranked[0]) + LOGIT_NOISE
    precisions = np.arange(1, len(ranked) + 1) / np.searchsorted(np.sort(-scores), -ranked, side="right")
    reached = np.flatnonzero(precisions >= target)
    return float(ranked[reached[-1] if len(reached) else precisions.argmax()]) - LOGIT_NOISE


THRESHOLDS = {
    "min_recall": threshold_for_recall,
    "min_precision": threshold_for_precision,
    "max_alerts": threshold_for_alerts,
    "cost": threshold_of_least_cost,
}

HOLDS = {"min_recall": recall_holds, "min_precision": precision_holds}


def _at_or_above(rank: int, rows: int, new_rows: int, least: int) -> float:
    """Return the probability that at least `least` of `new_rows` new rows score at least as high as an old row.

    The old row has the rank `rank` among `rows` old rows. At least `least` new rows reach its score if at least
    `least` of the highest `least + rank - 1` rows, old and new rows together, are new.
    """
    from scipy.stats import hypergeom

    if least <= 0:
        return 1.0
    if least > new_rows or rank < 1:
        return 0.0
    return float(hypergeom.sf(least - 1, rows + new_rows, new_rows, least + rank - 1))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """Return the smallest number from 1 to `count` for which a monotone condition holds, found by bisection.

    Returns None if the condition never holds.
    """
    if count < 1 or not holds(count):
        return None
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _rows_needed(holds: Callable[[int], bool], most: int = 100_000) -> int | None:
    """Return the approximate smallest number of rows for which a condition holds, at most 2 % too large."""
    count = 1
    while count <= most:
        if holds(count):
            return count
        count += max(1, count // 50)
    return None


def _ceil(rows: float) -> int:
    """Return the smallest integer that is at least `rows`, with a tolerance for rounding errors."""
    return int(np.ceil(rows - 1e-9))
