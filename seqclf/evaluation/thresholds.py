"""Decision thresholds from scores and labels of held-out rows, with a statement about new rows.

A threshold has the strongest statement that the rows back, up to the statement that was asked for:

- *Sure*: with a given confidence, the target holds on new data.
- *On average*: the target holds for the expected value on new data. The mean is taken over draws of the held-out rows.
- *As in the rows*: the held-out rows themselves meet the target, and nothing is said about new rows.

The statements hold for any distribution of scores. Of m new rows from the distribution of n held-out rows, the number
at or above the k-th highest held-out score is beta-binomial with the parameters (m, k, n - k + 1), a fact of order
statistics, and its mean is m k / (n + 1). Ties only make a statement safer. A sure statement covers every m ≥ n.
Several m allow the same number of missed rows, and the largest of these m is the hardest, so the first such m and the
whole population are checked (`tests/evaluation/test_thresholds.py` compares every m).

With weights w of rows, a recall on average is that of the weights: the weight of the found rows with the label is at
least the target times W + Σw² / W, for a sum W. The last term, the mean weight of a unit of weight, takes the place of
the one new row. This is approximate, and says nothing where the rows count as fewer than `MIN_EFFECTIVE` by Kish's
number, because a heavier row than all of them may then come (simulated in docs/log.md). A sure statement, a precision
and a budget of alerts count rows.

Rows of one group are not independent. A sure statement counts one random row of each group. The others give each of G
groups the weight 1 / (G + 1), shared by its rows.
Reference: Lee, Barber and Willett 2023, "Distribution-free inference with hierarchical data".

Scores are logit margins (differences of logits), because margins stay distinct where probabilities round to 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from seqclf.evaluation.design_effect import effective_groups

SURE, AVERAGE, ROWS = STATEMENTS = ("sure", "average", "rows")  # the strongest first
CANDIDATES = 20  # number of thresholds that are tested for a sure precision
LOGIT_NOISE = 1e-4  # largest difference of a logit between PyTorch and ONNX Runtime, or between two batches
SEED = 0  # seed of the random draw of one row from each group
TOLERANCE = 1e-9  # of sums of weights
MIN_EFFECTIVE = 20  # Kish's number of weighted units that a recall on average takes


@dataclass(frozen=True)
class Threshold:
    """Decision threshold on the logit margin. At a threshold of 0, the most probable label is predicted.

    `statement`: one of `STATEMENTS`. `rows`: held-out units that the rule counts. `needed`: units that would back the
    statement asked for, None if it is backed or unknown.
    """

    value: float
    statement: str
    rows: int
    needed: int | None = None


def find_threshold(
    rule: str,
    scores: np.ndarray,
    truth: np.ndarray,
    target: float,
    confidence: float | None = None,
    group: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Threshold:
    """Return the threshold of a rule with the strongest statement that held-out rows back.

    `scores`: (N,) logit margins. `truth`: (N,) bool, True for rows with the label. `confidence`: of a sure statement,
    None for one on average. `group`: (N,) codes of groups, None if rows are independent. `weights`: (N,) of the rows,
    by which a recall on average counts; those of the rule `cost` are the costs of missing each row.

    >>> scores = np.arange(100.0)
    >>> find_threshold("min_recall", scores, scores >= 40, target=0.8, confidence=0.95)
    Threshold(value=39.5, statement='sure', rows=60, needed=None)
    >>> find_threshold("min_recall", scores[95:], scores[95:] >= 40, target=0.8, confidence=0.95)
    Threshold(value=94.9999, statement='average', rows=5, needed=20)
    """
    if rule == "cost":
        return threshold_of_least_cost(scores, truth, target, weights)
    sure, at_mean = RULES[rule]
    is_counted = truth | (rule != "min_recall")
    given = weights if rule == "min_recall" else None
    weights = unit_weights(is_counted, group, given)
    units = round(float(weights.sum()))
    one_more = 1.0 if given is None else units / max(1.0, effective_units(weights, group))
    is_steady = given is None or units >= MIN_EFFECTIVE * one_more
    if confidence is not None:
        drawn = np.ones(len(scores), bool) if group is None else one_of_each(np.flatnonzero(is_counted), group)
        drawn |= ~is_counted
        if (value := sure(scores[drawn], truth[drawn], target, confidence)) is not None:
            return Threshold(value, SURE, _counted(rule, units, drawn & (scores > value)))
    needed = rows_needed(rule, target, confidence)
    if not is_steady and confidence is None:
        needed = _ceil(MIN_EFFECTIVE * one_more)
    for statement, spare in ((AVERAGE, one_more), (ROWS, 0.0))[not is_steady :]:
        if units and (value := at_mean(scores, truth, weights, target, spare)) is not None:
            rows = _counted(rule, units, weights[scores > value])
            return Threshold(value, statement, rows, needed if (statement, confidence) != (AVERAGE, None) else None)
    if rule != "min_precision" or not truth.any():
        return Threshold(0.0, ROWS, 0, needed)
    value = _of_highest_precision(scores, truth)  # no threshold reaches the target
    return Threshold(value, ROWS, _counted(rule, units, weights[scores > value]), needed)


def _counted(rule: str, units: int, alerts: np.ndarray) -> int:
    """`alerts`: weights of the alerts, which a precision counts."""
    return round(float(alerts.sum())) if rule == "min_precision" else units


def unit_weights(is_counted: np.ndarray, group: np.ndarray | None, weights: np.ndarray | None = None) -> np.ndarray:
    """Return weights (N,) of the counted rows. Those of a group together have the weight 1.

    With `weights` (N,) of the rows, units have different weights, whose mean is 1.
    """
    found = is_counted.astype(np.float64)
    if group is not None:
        sizes = np.bincount(group[is_counted], minlength=int(group.max(initial=0)) + 1)
        found = np.where(is_counted, 1 / np.maximum(sizes[group], 1), 0.0)
    total = 0.0 if weights is None else float(found @ weights)
    return found if weights is None or not total else found * weights * (found.sum() / total)


def effective_units(weights: np.ndarray, group: np.ndarray | None) -> float:
    """Return Kish's effective number of weighted units: groups, or rows without groups (see `effective_groups`)."""
    return effective_groups(np.arange(len(weights)) if group is None else group, weights)


def one_of_each(rows: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of one random row of each group among the row numbers `rows`, always the same."""
    shuffled = np.random.default_rng(SEED).permutation(rows)
    _, first = np.unique(group[shuffled], return_index=True)
    chosen = np.zeros(len(group), bool)
    chosen[shuffled[first]] = True
    return chosen


def confidence_each(confidence: float | None, labels: int) -> float | None:
    """Return the confidence of each of some labels whose sure statements hold together with a `confidence`.

    The Bonferroni correction also holds if the labels depend on each other.

    >>> confidence_each(0.95, 5)
    0.99
    """
    return confidence and 1 - (1 - confidence) / labels


def rank_of(rule: str, statement: str, target: float, rows: int, confidence: float | None = None) -> int | None:
    """Return the rank k, from the highest score, of the held-out row that sets a threshold, or None.

    A recall counts rows with the label, `max_alerts` all rows. A precision has no rank.

    >>> [rank_of("min_recall", statement, 0.8, 61, 0.95) for statement in STATEMENTS]
    [56, 50, 49]
    """
    if rule not in ("min_recall", "max_alerts"):
        return None
    spare = 1 if statement == AVERAGE else 0
    if rule == "min_recall":
        rank = _ceil(target * (rows + spare))
        if statement == SURE:
            rank = _first(rows, lambda k: recall_holds(k, rows, target, confidence or 0.0)) or 0
    else:
        rank = int(target * (rows + spare) + TOLERANCE) + 1 - spare
        if statement == SURE:
            rank = (_first(rows, lambda k: not alerts_hold(k, rows, target, confidence or 0.0)) or rows + 1) - 1
    return rank if 1 <= rank <= rows else None


def rows_beyond_lowest(statement: str, target: float, rows: int, confidence: float | None) -> int | None:
    """Return the rows from which the lowest score no longer sets the threshold of a recall, None if it does not."""
    if rank_of("min_recall", statement, target, rows, confidence) != rows:
        return None
    count = rows + 1
    while rank_of("min_recall", statement, target, count, confidence) == count:
        count += 1
    return count


@lru_cache(maxsize=10_000)
def rows_needed(rule: str, target: float, confidence: float | None) -> int | None:
    """Return the units that are enough for a statement, sure with a `confidence`, or else on average.

    A precision counts alerts, of a model whose alerts are all right.
    """
    if confidence is not None:
        holds_at = SURE_HOLDS[rule]
        return _rows_needed(lambda n: holds_at(1 if rule == "max_alerts" else n, n, target, confidence))
    if rule == "max_alerts":
        return _ceil(1 / target - 1)
    return _ceil((target if rule == "min_recall" else 1) / (1 - target))


def holds(
    rule: str,
    statement: str,
    hits: float,
    units: float,
    target: float,
    confidence: float | None = None,
    one_more: float = 1.0,
) -> bool:
    """Return True if a statement holds for `hits` of `units` counted units (rows with the label, or alerts).

    `one_more`: units that a statement on average adds, more than 1 for units of unequal weights.
    """
    if statement == SURE:
        return SURE_HOLDS[rule](round(hits), round(units), target, confidence or 0.0)
    spare = one_more if statement == AVERAGE else 0
    if rule == "min_recall":
        return hits >= target * (units + spare) - TOLERANCE
    return units - hits + spare <= (1 - target) * units + TOLERANCE


def sure_recall(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> float | None:
    """Return the threshold with the fewest false alerts that keeps a recall of `target` on new data, None for few rows.

    Of thresholds with as many false alerts, the lowest, which has the highest recall.
    """
    ranked = -np.sort(-scores[truth])
    rank = rank_of("min_recall", SURE, target, len(ranked), confidence)
    return None if rank is None else _lower_for_free(ranked, scores[~truth], float(ranked[rank - 1]))


def mean_recall(
    scores: np.ndarray, truth: np.ndarray, weights: np.ndarray, target: float, spare: float
) -> float | None:
    """Return the highest threshold that a weight of `target` (units + `spare`) reaches, None if there is none.

    `weights`: (N,) of the rows with the label. `spare`: 1 on average, because the new row is one more unit, or more
    for units of unequal weights; else 0.
    """
    order = np.argsort(-scores[truth], kind="stable")
    ranked, reached = scores[truth][order], np.cumsum(weights[truth][order])
    enough = np.flatnonzero(reached >= target * (reached[-1] + spare) - TOLERANCE) if len(ranked) else ranked
    return _lower_for_free(ranked, scores[~truth], float(ranked[enough[0]])) if len(enough) else None


def _lower_for_free(ranked: np.ndarray, others: np.ndarray, highest: float) -> float:
    """Return the lowest threshold with the same false alerts as the threshold `highest`.

    `ranked`: scores of rows with the label. `others`: scores of other rows.
    """
    below = others[others < highest]
    if not len(below):
        return float(ranked.min()) - LOGIT_NOISE
    last = float(ranked[ranked > below.max()].min())
    return min((last + float(below.max())) / 2, last - LOGIT_NOISE)


@lru_cache(maxsize=10_000)
def recall_holds(hits: int, rows: int, target: float, confidence: float) -> bool:
    """Return True if a recall of `target` holds with `confidence` on any sample of at least `rows` positives.

    `hits`: number of the `rows` held-out positives that are found.
    """
    if not hits or _probability_of_share(target, hits, rows) < confidence:
        return False
    new_rows = _hardest_count(rows, 1 - target)
    return at_or_above(hits, rows, new_rows, _ceil(target * new_rows)) >= confidence


def _probability_of_share(share: float, rank: int, rows: int) -> float:
    """Return the probability that more than `share` of the population reaches the score of `rank` among `rows`."""
    from scipy.special import betainc

    return float(1 - betainc(rank, rows - rank + 1, share))


def _hardest_count(rows: int, share: float) -> int:
    """Return the largest number of rows that allows no more exceptions, a fraction `share`, than `rows` rows."""
    allowed = int(share * rows + 1e-9)
    # With more rows than this, one more exception would be allowed, which makes the target easier to keep.
    return max(rows, _ceil((allowed + 1) / share) - 1)


def sure_alerts(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> float | None:
    """Return the lowest threshold at which at most a fraction `target` of new rows are alerts, None if rows are few."""
    ranked = -np.sort(-scores)
    rank = rank_of("max_alerts", SURE, target, len(ranked), confidence)
    # An alert scores above the k-th score, so the number of alerts is at most the number of new rows at or above this
    # score.
    return None if rank is None else float(ranked[rank - 1]) + LOGIT_NOISE


def mean_alerts(
    scores: np.ndarray, truth: np.ndarray, weights: np.ndarray, target: float, spare: float
) -> float | None:
    """Return the lowest threshold whose alerts have a weight of at most `target` (units + `spare`) - `spare`."""
    order = np.argsort(-scores, kind="stable")
    above = np.cumsum(weights[order]) - weights[order]
    enough = np.flatnonzero(above + spare <= target * (weights.sum() + spare) + TOLERANCE)
    return float(scores[order][enough[-1]]) + LOGIT_NOISE if len(enough) else None


@lru_cache(maxsize=10_000)
def alerts_hold(alerts: int, rows: int, target: float, confidence: float) -> bool:
    """Return True if the fraction of alerts is at most `target`, with `confidence`, on at least `rows` new rows.

    `alerts`: number of alerts among `rows` held-out rows.
    """
    if _probability_of_share(target, alerts, rows) > 1 - confidence:
        return False
    new_rows = _hardest_count(rows, target)
    return at_or_above(alerts, rows, new_rows, int(target * new_rows + 1e-9) + 1) <= 1 - confidence


def sure_precision(scores: np.ndarray, truth: np.ndarray, target: float, confidence: float) -> float | None:
    """Return the threshold of highest recall at which the precision on new data is at least `target`, or None.

    It covers new data with at least as many alerts as the held-out rows. `CANDIDATES` thresholds share the risk of
    Fisher's exact tests (Bonferroni), which ask whether the held-out precision were likely for one below the target.
    """
    ranked = -np.sort(-scores[truth])
    ranks = np.unique(np.ceil(np.arange(1, CANDIDATES + 1) / CANDIDATES * len(ranked)).astype(int))
    values = [float(ranked[rank - 1]) - LOGIT_NOISE for rank in ranks.tolist() if rank]
    # The thresholds are tested in ascending order. The first threshold that passes has the highest recall.
    for value in values[::-1]:
        if precision_holds(int((truth & (scores >= value)).sum()), int((scores >= value).sum()), target, confidence):
            return value
    return None


def mean_precision(
    scores: np.ndarray, truth: np.ndarray, weights: np.ndarray, target: float, spare: float
) -> float | None:
    """Return the lowest threshold at which (wrong alerts + `spare`) / alerts is at most 1 - `target`, None without one.

    The precision on new rows is `target` or more on average in simulations (docs/log.md), which nothing proves.
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    alerts, wrong = np.cumsum(weights[order]), np.cumsum((weights * ~truth)[order])
    fits_between = np.r_[ranked[:-1] - ranked[1:] > LOGIT_NOISE, True]
    enough = np.flatnonzero(fits_between & (wrong + spare <= (1 - target) * alerts + TOLERANCE))
    return float(ranked[enough[-1]]) - LOGIT_NOISE / 2 if len(enough) else None


def _of_highest_precision(scores: np.ndarray, truth: np.ndarray) -> float:
    ranked = -np.sort(-scores[truth])
    precisions = np.arange(1, len(ranked) + 1) / np.searchsorted(np.sort(-scores), -ranked, side="right")
    return float(ranked[precisions.argmax()]) - LOGIT_NOISE


@lru_cache(maxsize=10_000)
def precision_holds(hits: int, alerts: int, target: float, confidence: float) -> bool:
    """Return True if a precision of `target` holds with `confidence` on at least `alerts` new alerts.

    `hits`: number of the `alerts` held-out alerts that are right.
    """
    from scipy.stats import hypergeom

    risk = (1 - confidence) / CANDIDATES
    # Probability of at least `hits` hits (binomial) if only a fraction `target` of the population are hits.
    if not hits or 1 - _probability_of_share(target, hits, alerts) > risk:
        return False
    new_alerts = _hardest_count(alerts, 1 - target)
    short = _ceil(target * new_alerts) - 1
    return bool(hypergeom.cdf(short, alerts + new_alerts, hits + short, new_alerts) <= risk)


def threshold_of_least_cost(
    scores: np.ndarray, truth: np.ndarray, target: float, row_costs: np.ndarray | None = None
) -> Threshold:
    """Return the threshold of the lowest total cost. A missed row costs `target` times as much as a false alert.

    `row_costs`: (N,) factors of `target`, None for 1.
    """
    if not len(scores):
        return Threshold(0.0, ROWS, 0)
    order = np.argsort(-scores, kind="stable")
    ranked, is_hit = scores[order], truth[order]
    lost = is_hit if row_costs is None else is_hit * row_costs[order]
    missed = lost.sum() - np.concatenate([[0], np.cumsum(lost)])
    costs = target * missed + np.concatenate([[0.0], np.cumsum(~is_hit)])
    costs[1:-1][ranked[:-1] - ranked[1:] <= LOGIT_NOISE / 10] = np.inf  # no threshold fits between such close scores
    alerts = int(costs.argmin())
    if alerts in (0, len(ranked)):
        value = ranked[0] + LOGIT_NOISE if alerts == 0 else ranked[-1] - LOGIT_NOISE
    else:
        value = (ranked[alerts - 1] + ranked[alerts]) / 2
    return Threshold(float(value), ROWS, len(scores))


SURE_HOLDS = {"min_recall": recall_holds, "min_precision": precision_holds, "max_alerts": alerts_hold}
RULES = {  # rule → function of the sure threshold, and function of the threshold on average and as in the rows
    "min_recall": (sure_recall, mean_recall),
    "min_precision": (sure_precision, mean_precision),
    "max_alerts": (sure_alerts, mean_alerts),
}


def at_or_above(rank: int, rows: int, new_rows: int, least: int) -> float:
    """Return the probability that at least `least` of `new_rows` new rows reach the score of an old row.

    It has the rank `rank` among `rows` old rows: `least` of the highest `least + rank - 1` of all rows are new.
    """
    from scipy.stats import hypergeom

    if least <= 0:
        return 1.0
    if least > new_rows or rank < 1:
        return 0.0
    return float(hypergeom.sf(least - 1, rows + new_rows, new_rows, least + rank - 1))


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """Return the smallest number from 1 to `count` for which a monotone condition holds, or None."""
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
    """Round up, with a tolerance for rounding errors."""
    return int(np.ceil(rows - 1e-9))
