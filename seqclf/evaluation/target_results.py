"""Comparison of a decision's targets with the results on a split, counted in the units of the guarantees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.intervals import proportion_interval
from seqclf.evaluation.thresholds import SURE, at_or_above, rank_of
from seqclf.system.json_result import JsonResult

TAIL = 0.025  # probability of a count that contradicts a statement on average
MET, WITHIN_CHANCE, BROKEN, RULED_OUT = "met", "within_chance", "broken", "ruled_out"


@dataclass(frozen=True, kw_only=True)
class TargetResult(JsonResult):
    """Result of one target of a decision on a split.

    `value`: observed metric, None if no row is counted; for groups the expected value of one random row of each.
    `units`: rows or groups that are counted. `low`, `high`: 95 % confidence interval of `value`. `status`: "met",
    "within_chance" (missed), "broken" (missed, and the rows contradict the statement), "ruled_out" (a recall that the
    budget of alerts forbids), or None if no row is counted. A sure statement and a precision are broken if the interval
    does not contain the target, others if the count is in the outer 2.5 % of the beta-binomial distribution of the
    threshold's rank.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"value", "low", "high", "status"})

    rule: str
    label: str
    target: float
    units: float
    value: float | None = None
    low: float | None = None
    high: float | None = None
    status: str | None = None


def target_results(
    decision: Decision, labels: np.ndarray, predicted: np.ndarray, classes: list[str], group: np.ndarray | None = None
) -> list[TargetResult]:
    """Return the result of each target that has a guarantee, in the order of the targets.

    `labels`, `predicted`: (N,) class numbers. `group`: (N,) codes of groups, None if rows are independent.

    >>> target = Guarantee(
    ...     rule="min_recall", label="yes", target=0.8, confidence=None, statement="average", backed=True, rows=20,
    ...     needed=None,
    ... )
    >>> labels, predicted = np.ones(50, int), np.arange(50) % 2
    >>> (result,) = target_results(Decision(targets=(target,)), labels, predicted, ["no", "yes"])
    >>> result.value, result.status
    (0.5, 'broken')
    """
    guaranteed = [target for target in decision.targets if target.rule != "cost"]
    return [
        _result(target, labels == classes.index(target.label), predicted == classes.index(target.label), group)
        for target in guaranteed
    ]


def _result(
    target: Guarantee, is_label: np.ndarray, is_predicted: np.ndarray, group: np.ndarray | None
) -> TargetResult:
    everything = np.ones(len(is_label), bool)
    counted, hits, drawn = {
        "min_recall": (is_label, is_predicted, is_label),
        "min_precision": (is_predicted, is_label, everything),
        "max_alerts": (everything, is_predicted, everything),
    }[target.rule]
    weight = np.ones(len(is_label))
    if group is not None and target.unit is not None:
        # A guarantee counts one random row of each group, so all rows of a group together have the weight of one row.
        weight = 1 / np.maximum(np.bincount(group[drawn], minlength=group.max() + 1)[group], 1)
    units = float(weight[counted].sum())
    result = TargetResult(rule=target.rule, label=target.label, target=target.target, units=units)
    share = float(weight[counted & hits].sum())
    interval = proportion_interval(min(share, units), units)
    if interval is None:
        return result
    value, (low, high) = share / units, interval
    is_met = value <= target.target if target.rule == "max_alerts" else value >= target.target
    status = MET if is_met else BROKEN if _contradicts(target, share, units, (low, high)) else WITHIN_CHANCE
    if target.takes is not None and not is_met:
        status = RULED_OUT
    return TargetResult(**{**vars(result), "value": value, "low": low, "high": high, "status": status})


def _contradicts(target: Guarantee, hits: float, units: float, interval: tuple[float, float]) -> bool:
    """Return True if a count that misses a target is too far off for chance. `interval`: interval of the proportion."""
    is_limit = target.rule == "max_alerts"
    rank = rank_of(target.rule, target.statement, target.target, target.rows, target.confidence)
    if target.statement == SURE or rank is None:
        return interval[0] > target.target if is_limit else interval[1] < target.target
    count, new_rows = round(hits), round(units)
    at_least = at_or_above(rank, target.rows, new_rows, count if is_limit else count + 1)
    return (at_least if is_limit else 1 - at_least) < TAIL
