"""Scores and labels of rows kept apart → thresholds that keep a promise on new data.

Promises are exact and free of assumptions on the scores' distribution. A threshold is set at the score of the k-th of n
rows; of m new rows of the same kind, the number at or above it is then beta-binomial with parameters (m, k, n - k + 1),
whatever that distribution is (a fact of order statistics; equal scores only make it safer). The promise is for new data
with at least as many such rows: for every m from n on. Of all m that allow the same number of rows to be missed, the
largest is the hardest to keep. The chance at the first such m and that of the whole population bound all others
(`tests/evaluation/test_decision.py` compares with every m).

Scores are differences of logits, which stay apart where probabilities are 1 to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CANDIDATES = 20  # thresholds that min_precision considers
NOISE = 1e-4  # by which the same row's logits may differ between PyTorch and ONNX Runtime, and from batch to batch


@dataclass(frozen=True)
class Threshold:
    """A score from which on rows are chosen; 0: the most probable label. `backed`: whether the promise stands; `rows`:
    kept apart that it rests on; `needed`: how many would do where they are too few, if that can be told."""

    value: float
    backed: bool
    rows: int
    needed: int | None = None

    def evidence(self) -> dict[str, Any]:
        return {"backed": self.backed, "rows": self.rows, "needed": self.needed}


def keep_recall(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the fewest false alerts that keeps the recall of `truth` (N,) at `target` in new data; among
    those the lowest, as recall beyond the target is welcome where it costs nothing."""
    ranked = -np.sort(-scores[truth])
    count = len(ranked)
    place = _first(count, lambda found: recall_holds(found, count, target, confidence))
    if place is not None:
        return Threshold(_free(ranked, scores[~truth], float(ranked[place - 1])), True, count)
    lowest = float(ranked[-1]) - NOISE if count else 0.0
    return Threshold(lowest, False, count, _needed(lambda n: recall_holds(n, n, target, confidence)))


def _free(own: np.ndarray, others: np.ndarray, highest: float) -> float:
    """The lowest threshold that chooses none of the `others` besides those at or above `highest`."""
    below = others[others < highest]
    if not len(below):
        return float(own.min()) - NOISE
    last = float(own[own > below.max()].min())
    return min((last + float(below.max())) / 2, last - NOISE)


def recall_holds(found: int, rows: int, target: float, confidence: float) -> bool:
    """Whether `rows` or more new rows keep the recall where a threshold finds `found` of as many rows kept apart."""
    if not found or _share_above(target, found, rows) < confidence:
        return False
    new = _hardest(rows, 1 - target)
    return _at_or_above(found, rows, new, _least(target * new)) >= confidence


def _share_above(share: float, place: int, rows: int) -> float:
    """The chance that more than a `share` of the population scores at or above the `place`-th of `rows` rows."""
    from scipy.special import betainc

    return float(1 - betainc(place, rows - place + 1, share))


def _hardest(rows: int, share: float) -> int:
    """The most rows of which no more than of `rows` may be exceptions, where exceptions may be a `share` of all."""
    allowed = int(share * rows + 1e-9)
    return max(rows, _least((allowed + 1) / share) - 1)


def keep_alerts(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The lowest threshold that chooses at most a share `target` of new rows."""
    ranked = -np.sort(-scores)
    count = len(ranked)
    # The alerts are above the place-th score, so at most as many new rows as lie at or above it.
    last = _first(count, lambda k: not alerts_hold(k, count, target, confidence))
    place = (last or count + 1) - 1
    if place < 1:
        needed = _needed(lambda n: alerts_hold(1, n, target, confidence))
        return Threshold(float(ranked[0]) + NOISE if count else 0.0, False, count, needed)
    return Threshold(float(ranked[place - 1]) + NOISE, True, count)


def alerts_hold(alerts: int, rows: int, target: float, confidence: float) -> bool:
    """Whether of `rows` or more new rows at most a share `target` reaches the score that `alerts` of as many do."""
    if _share_above(target, alerts, rows) > 1 - confidence:
        return False
    new = _hardest(rows, target)
    return _at_or_above(alerts, rows, new, int(target * new + 1e-9) + 1) <= 1 - confidence


def keep_precision(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the highest recall whose precision stays at `target` in new data with as many alerts or more.

    Looks at `CANDIDATES` thresholds, each at its share of the risk (Bonferroni): beside new data that fall short,
    the rows kept apart would have to be a surprise by Fisher's exact test.
    """
    own = -np.sort(-scores[truth])
    places = np.unique(np.ceil(np.arange(1, CANDIDATES + 1) / CANDIDATES * len(own)).astype(int))
    values = [float(own[place - 1]) - NOISE for place in places.tolist() if place]
    counts = [(int((truth & (scores >= value)).sum()), int((scores >= value).sum())) for value in values]
    for value, (right, alerts) in zip(values[::-1], counts[::-1], strict=True):
        if precision_holds(right, alerts, target, confidence):
            return Threshold(value, True, alerts)
    best = int(np.argmax([right / alerts for right, alerts in counts])) if counts else -1
    needed = _needed(lambda n: precision_holds(n, n, target, confidence))
    if best < 0:
        return Threshold(0.0, False, 0, needed)
    return Threshold(values[best], False, counts[best][1], needed)


def precision_holds(right: int, alerts: int, target: float, confidence: float) -> bool:
    """Whether `alerts` or more new alerts keep the precision where `right` of as many alerts kept apart are."""
    from scipy.stats import hypergeom

    risk = (1 - confidence) / CANDIDATES
    # The binomial chance that so many are right where only a share `target` of the population is.
    if not right or 1 - _share_above(target, right, alerts) > risk:
        return False
    new = _hardest(alerts, 1 - target)
    short = _least(target * new) - 1
    return bool(hypergeom.cdf(short, alerts + new, right + short, new) <= risk)


def least_cost(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> Threshold:
    """The threshold of the lowest cost, a row of `truth` that is missed costing `target` times a false alarm."""
    order = np.argsort(-scores, kind="stable")
    ranked, right = scores[order], truth[order]
    missed = right.sum() - np.concatenate([[0], np.cumsum(right)])
    costs = target * missed + np.concatenate([[0.0], np.cumsum(~right)])
    costs[1:-1][ranked[:-1] - ranked[1:] <= NOISE / 10] = np.inf  # such scores are chosen together
    place = int(costs.argmin())
    if place in (0, len(ranked)):
        value = ranked[0] + NOISE if place == 0 else ranked[-1] - NOISE
    else:
        value = (ranked[place - 1] + ranked[place]) / 2
    return Threshold(float(value), True, len(scores))


THRESHOLDS = {
    "min_recall": keep_recall,
    "min_precision": keep_precision,
    "max_alerts": keep_alerts,
    "cost": least_cost,
}

HOLDS = {"min_recall": recall_holds, "min_precision": precision_holds}


def _at_or_above(place: int, count: int, new: int, wanted: int) -> float:
    """The chance that at least `wanted` of `new` rows score at or above the `place`-th of `count` rows.

    They do if, of the `wanted` + `place` - 1 highest of all rows, at least `wanted` are new.
    """
    from scipy.stats import hypergeom

    if wanted <= 0:
        return 1.0
    if wanted > new or place < 1:
        return 0.0
    return float(hypergeom.sf(wanted - 1, count + new, new, wanted + place - 1))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """The smallest of 1 … `count` for which a condition holds that, once true, stays so."""
    if count < 1 or not holds(count):
        return None
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def _needed(holds: Callable[[int], bool], most: int = 100_000) -> int | None:
    """About the smallest number of rows for which a condition holds."""
    count = 1
    while count <= most:
        if holds(count):
            return count
        count += max(1, count // 50)
    return None


def _least(share: float) -> int:
    """The smallest whole number of rows that reaches a share."""
    return int(np.ceil(share - 1e-9))
