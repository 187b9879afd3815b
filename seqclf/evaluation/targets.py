"""Targets: on a split, beside others on the rows that set the threshold, and the rows that force a recall.

Each row of the table of targets is a decision of `choose_decision` for a target that was set before the rows were seen;
`cost_of_picking` says what a pick after reading the table costs. Counts are in the units of the guarantees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqclf.evaluation.choose_decision import GUARANTEED_RULES, choose_decision
from seqclf.evaluation.decision import HELD_OUT, RULES, Decision, Guarantee
from seqclf.evaluation.intervals import effective_proportion, proportion_interval
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.thresholds import AVERAGE, SURE, at_or_above, confidence_each, rank_of
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonResult

TAIL = 0.025  # probability of a count that contradicts a statement on average
MET, WITHIN_CHANCE, BROKEN, RULED_OUT = "met", "within_chance", "broken", "ruled_out"
CONFIDENCE = 0.95  # confidence of sure statements, if a run asks for a statement on average
MAX_WORK = 1_000_000  # logits times the square of the number of labels with a target
DRAWS = 20_000  # simulated samples of held-out rows, for the cost of picking a row of the table
TARGETS = {  # rule → targets, the hardest first
    "min_recall": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.2),
    "min_precision": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "max_alerts": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
}
MAX_ROWS = 10  # lowest positives of each label that are left out in turn
MAX_RATIO = 0.5  # alerts without a row / alerts with it; at most this ratio makes the label of the row worth a check


@dataclass(frozen=True, kw_only=True)
class Target(JsonResult):
    """A target at its threshold on some rows: those of a split, or those that set the threshold.

    `confidence`, `statement`, `basis`, `backed`: see `Guarantee`. `asked`: True for a target of the decision that
    ships. `threshold`: probability of the label; with several classes, beside the most probable other label alone.
    `precision`, `recall`: of the label, None if undefined.

    On a split also: `units`: rows or groups that the rule counts. `value`: observed metric, None if none is counted; of
    groups the expected value of one random row of each. `low`, `high`: 95 % confidence interval of `value`. `status`:
    "met", "within_chance" (missed), "broken" (missed, and the rows contradict the statement), "ruled_out" (a recall
    that the budget of alerts forbids). A sure statement and a precision are broken if the interval does not contain the
    target, others if the count is in the outer 2.5 % of the beta-binomial distribution of the threshold's rank.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"units", "value", "low", "high", "status"})

    rule: str
    label: str
    target: float
    confidence: float | None
    statement: str
    basis: str
    backed: bool
    asked: bool
    threshold: float
    alerts_per_1000: float
    precision: float | None
    recall: float | None
    units: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    status: str | None = None

    @classmethod
    def of(
        cls,
        guarantee: Guarantee,
        decision: Decision,
        is_alert: np.ndarray,
        is_label: np.ndarray,
        index: int,
        *,
        asked: bool,
        weights: np.ndarray | None = None,
        **observed: Any,
    ) -> Target:
        """Return a target on rows: (N,) alerts for the label, which is number `index`, and rows with it.

        `weights`: (N,) of the rows, by which the recall of a weighted guarantee counts.
        """
        alerts, hits, positives = (int(part.sum()) for part in (is_alert, is_alert & is_label, is_label))
        recall = hits / positives if positives else None
        if guarantee.weighted and weights is not None and (total := float(weights[is_label].sum())):
            recall = float(weights[is_alert & is_label].sum()) / total
        same = ("rule", "label", "target", "confidence", "statement", "basis", "backed")
        return cls(
            **{name: getattr(guarantee, name) for name in same},
            asked=asked,
            threshold=decision.threshold_of(index),
            alerts_per_1000=1000 * alerts / max(1, len(is_label)),
            precision=hits / alerts if alerts else None,
            recall=recall,
            **observed,
        )


def target_results(
    decision: Decision,
    labels: np.ndarray,
    predicted: np.ndarray,
    classes: list[str],
    group: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> list[Target]:
    """Return the result of each target that has a guarantee, in the order of the targets.

    `labels`, `predicted`: (N,) class numbers. `group`: (N,) codes of groups, None if rows are independent. `weights`:
    (N,) of the rows, which count for a weighted guarantee; without, its value is unknown.

    >>> target = Guarantee(
    ...     rule="min_recall", label="yes", target=0.8, confidence=None, statement="average", backed=True, rows=20,
    ...     needed=None,
    ... )
    >>> labels, predicted = np.ones(50, int), np.arange(50) % 2
    >>> (result,) = target_results(Decision(targets=(target,)), labels, predicted, ["no", "yes"])
    >>> result.value, result.status
    (0.5, 'broken')
    """
    results = []
    for guarantee in decision.targets:
        if guarantee.rule != "cost":
            index = classes.index(guarantee.label)
            is_alert, is_label = predicted == index, labels == index
            given = weights if guarantee.weighted else None
            is_known = not guarantee.weighted or weights is not None
            observed = _observed(guarantee, is_label, is_alert, group, given) if is_known else {}
            rows = is_alert, is_label, index
            results.append(Target.of(guarantee, decision, *rows, asked=True, weights=weights, **observed))
    return results


def _observed(
    target: Guarantee,
    is_label: np.ndarray,
    is_predicted: np.ndarray,
    group: np.ndarray | None,
    weights: np.ndarray | None,
) -> dict[str, Any]:
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
    units, share = float(weight[counted].sum()), float(weight[counted & hits].sum())
    if weights is not None and units:
        units, share = effective_proportion(hits[counted], (weight * weights)[counted])
    interval = proportion_interval(min(share, units), units)
    if interval is None:
        return {"units": units}
    value = share / units
    is_met = value <= target.target if target.rule == "max_alerts" else value >= target.target
    missed = BROKEN if _contradicts(target, share, units, interval) else WITHIN_CHANCE
    status = MET if is_met else missed if target.takes is None else RULED_OUT
    return {"units": units, "value": value, "low": interval[0], "high": interval[1], "status": status}


def _contradicts(target: Guarantee, hits: float, units: float, interval: tuple[float, float]) -> bool:
    """Return True if a count that misses a target is too far off for chance. `interval`: interval of the proportion."""
    is_limit = target.rule == "max_alerts"
    rank = rank_of(target.rule, target.statement, target.target, target.rows, target.confidence)
    if target.statement == SURE or rank is None or target.weighted:
        return interval[0] > target.target if is_limit else interval[1] < target.target
    count, new_rows = round(hits), round(units)
    at_least = at_or_above(rank, target.rows, new_rows, count if is_limit else count + 1)
    return (at_least if is_limit else 1 - at_least) < TAIL


def target_rows(
    options: DecisionOptions, decision: Decision, rows: ScoredRows, classes: list[str], basis: str = HELD_OUT
) -> Iterator[Target]:
    """Yield the targets of a table for each guarantee of `decision`, the hardest first, without repeated thresholds.

    Each target has a row on average, and a sure row if the rows back one. Many labels with a target have the configured
    one alone, because each other row is a decision of its own. `rows`: those that set the thresholds by `options`.
    """

    def found(guarantee: Guarantee, other: Decision, asked: bool) -> Target:
        index = classes.index(guarantee.label)
        is_alert, is_label = other.choose(rows.logits) == index, rows.labels == index
        return Target.of(guarantee, other, is_alert, is_label, index, asked=asked, weights=rows.weights)

    setting: Any = (rows.logits, rows.labels, classes, decision.positive, rows.group, rows.unit, basis)
    setting = *setting, rows.weights, rows.costs
    for asked in decision.targets:
        if asked.rule not in GUARANTEED_RULES:
            return
        if is_much_work(decision, rows):
            yield found(asked, decision, True)
            continue
        sure, known = asked.confidence or CONFIDENCE, set()
        for target in sorted({*TARGETS[asked.rule], asked.target}, reverse=asked.rule != "max_alerts"):
            line = []
            for confidence in (None, sure):
                other = choose_decision(_with_target(options, decision, asked, target, confidence), *setting)
                guarantee = next(entry for entry in other.targets if entry.label == asked.label)
                # Where a budget of alerts rules the target out, the run has none of these thresholds.
                is_asked = (target, confidence, None) == (asked.target, asked.confidence, asked.takes)
                if confidence is None or guarantee.statement == SURE or is_asked:
                    line.append(found(guarantee, other, is_asked))
            thresholds = tuple(row.threshold for row in line)
            if thresholds not in known or any(row.asked for row in line):
                known.add(thresholds)
                yield from line


def is_much_work(decision: Decision, rows: ScoredRows) -> bool:
    """Return True if the decisions of other targets, or without some rows, would take more than some seconds."""
    return decision.positive is None and rows.logits.size * len(decision.targets) ** 2 > MAX_WORK


def _with_target(
    options: DecisionOptions, decision: Decision, asked: Guarantee, target: float, confidence: float | None
) -> DecisionOptions:
    targets: Mapping[str, float] | float = target
    if decision.positive is None:
        targets = {entry.label: entry.target for entry in decision.targets} | {asked.label: target}
    changed: dict[str, Any] = {**dict.fromkeys(RULES), asked.rule: targets, "confidence": confidence}
    return options.model_copy(update=changed)


def cost_of_picking(rows: Sequence[Target], guarantee: Guarantee, labels: int = 1) -> tuple[float, float] | None:
    """Return what the statements lose if a row of the table is picked after reading it, at worst.

    First the mean, over samples of held-out rows, of the largest amount by which new rows miss a target on average;
    second the probability that some sure row misses its target. `labels`: labels that share the risk of the sure rows.
    Returns None for a precision, whose thresholds have no ranks.
    """
    ranked = []
    for row in rows:
        each = confidence_each(row.confidence, labels)
        ranked.append((row, rank_of(guarantee.rule, row.statement, row.target, guarantee.rows, each)))
    ranks = np.array([rank for _, rank in ranked if rank is not None])
    if not len(ranks):
        return None
    # The fractions of new rows above the held-out rows of some ranks are sums of gamma variables over their total.
    order = np.unique([0, *ranks, guarantee.rows + 1])
    gaps = np.random.default_rng(0).gamma(np.diff(order), size=(DRAWS, len(order) - 1))
    above = np.cumsum(gaps, axis=1) / gaps.sum(axis=1, keepdims=True)
    sign = -1 if guarantee.rule == "max_alerts" else 1
    missed = {AVERAGE: [np.zeros(DRAWS)], SURE: [np.zeros(DRAWS)]}
    for row, rank in ranked:
        if rank is not None and row.statement in missed:
            missed[row.statement].append(sign * (row.target - above[:, np.searchsorted(order, rank) - 1]))
    worst = {statement: np.max(values, axis=0) for statement, values in missed.items()}
    return float(worst[AVERAGE].mean()), float((worst[SURE] > 0).mean())


@dataclass(frozen=True)
class ForcingRow(JsonResult):
    """One of the rows with the lowest scores of a label with a recall target.

    `score`: probability of the label. `alerts_per_1000`, `without_it`: alerts at the threshold of all rows, and of the
    others. `check_label`: True if leaving the row out halves the alerts.
    """

    label: str
    id: str
    score: float
    alerts_per_1000: float
    without_it: float
    check_label: bool


def forcing_rows(
    options: DecisionOptions, decision: Decision, rows: ScoredRows, classes: list[str]
) -> Iterator[ForcingRow]:
    """Yield the lowest positives of each recall target, the lowest first; none for many labels.

    `rows`: outputs for the rows that set the thresholds of `decision` by `options`.
    """
    group, everything = rows.group, np.arange(len(rows.labels))
    for target in decision.targets:
        if target.rule != "min_recall" or is_much_work(decision, rows):
            continue
        index = classes.index(target.label)
        probabilities = decision.probabilities(rows.logits)
        scores, ranked = probabilities[:, index], ranking_scores(probabilities)[:, index]
        positives = np.flatnonzero(rows.labels == index)
        alerts = 1000 * float((decision.choose(rows.logits) == index).mean())
        for row in positives[np.argsort(ranked[positives], kind="stable")][:MAX_ROWS].tolist():
            others = rows.take(everything[everything != row])
            of_group = None if group is None else group[everything != row]
            setting = others.logits, others.labels, classes, decision.positive, of_group
            other = choose_decision(options, *setting, weights=others.weights, costs=others.costs)
            without = 1000 * float((other.choose(rows.logits) == index).mean())
            name = str(row) if rows.ids is None else str(rows.ids[row])
            check = without <= MAX_RATIO * alerts and alerts > 0
            yield ForcingRow(target.label, name, float(scores[row]), alerts, without, check)
