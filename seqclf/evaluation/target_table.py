"""Table of targets: the thresholds of other targets than the configured one, on the rows that set the threshold.

Each row is a decision of `choose_decision` for a target that was set before the rows were seen; `cost_of_picking` says
what a pick after reading the table costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.evaluation.choose_decision import GUARANTEED_RULES, choose_decision
from seqclf.evaluation.decision import HELD_OUT, RULES, Decision, Guarantee
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.thresholds import AVERAGE, SURE, confidence_each, rank_of
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95  # confidence of sure statements, if a run asks for a statement on average
MAX_WORK = 1_000_000  # logits times the square of the number of labels with a target
DRAWS = 20_000  # simulated samples of held-out rows, for the cost of picking a row of the table
TARGETS = {  # rule → targets, the hardest first
    "min_recall": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.2),
    "min_precision": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "max_alerts": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
}


@dataclass(frozen=True)
class TargetRow(JsonResult):
    """Alerts for `label` at the threshold of one target, counted on all rows that set the threshold.

    `confidence`: value of `decision.confidence`, null on average. `statement`, `basis`, `backed`: see `Guarantee`.
    `asked`: True for the configured target. `threshold`: probability of the label; with several classes, beside the
    most probable other label alone. `precision`, `recall`: None if undefined.
    """

    rule: str
    label: str
    target: float
    confidence: float | None
    statement: str
    basis: str
    threshold: float
    alerts_per_1000: float
    precision: float | None
    recall: float | None
    backed: bool
    asked: bool


def target_rows(
    options: DecisionOptions,
    decision: Decision,
    held_out: ScoredRows,
    classes: list[str],
    basis: str = HELD_OUT,
) -> Iterator[TargetRow]:
    """Yield rows for each guarantee of `decision`, the hardest target first, without repeated thresholds.

    Each target has a row on average, and a sure row if the rows back one. Many labels with a target have the configured
    one alone, because each other row is a decision of its own. `held_out`: rows that set the thresholds by `options`.
    """
    group = held_out.group
    for asked in decision.targets:
        if asked.rule not in GUARANTEED_RULES:
            return
        if is_much_work(decision, held_out):
            yield _row(asked, decision, held_out, classes, True)
            continue
        sure, known = asked.confidence or CONFIDENCE, set()
        targets = sorted({*TARGETS[asked.rule], asked.target}, reverse=asked.rule != "max_alerts")
        for target in targets:
            rows = []
            for confidence in (None, sure):
                changed = _with_target(options, decision, asked, target, confidence)
                other = choose_decision(
                    changed, held_out.logits, held_out.labels, classes, decision.positive, group, held_out.unit, basis
                )
                guarantee = next(entry for entry in other.targets if entry.label == asked.label)
                # Where a budget of alerts rules the target out, the run has none of these thresholds.
                is_asked = (target, confidence, None) == (asked.target, asked.confidence, asked.takes)
                if confidence is None or guarantee.statement == SURE or is_asked:
                    rows.append(_row(guarantee, other, held_out, classes, is_asked))
            thresholds = tuple(row.threshold for row in rows)
            if thresholds not in known or any(row.asked for row in rows):
                known.add(thresholds)
                yield from rows


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


def _row(
    guarantee: Guarantee, decision: Decision, held_out: ScoredRows, classes: list[str], is_asked: bool
) -> TargetRow:
    index = classes.index(guarantee.label)
    is_alert, is_label = decision.choose(held_out.logits) == index, held_out.labels == index
    alerts, hits, positives = (int(part.sum()) for part in (is_alert, is_alert & is_label, is_label))
    return TargetRow(
        rule=guarantee.rule,
        label=guarantee.label,
        target=guarantee.target,
        confidence=guarantee.confidence,
        statement=guarantee.statement,
        basis=guarantee.basis,
        threshold=decision.threshold_of(index),
        alerts_per_1000=1000 * alerts / max(1, len(is_label)),
        precision=hits / alerts if alerts else None,
        recall=hits / positives if positives else None,
        backed=guarantee.backed,
        asked=is_asked,
    )


def cost_of_picking(rows: Sequence[TargetRow], guarantee: Guarantee, labels: int = 1) -> tuple[float, float] | None:
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
