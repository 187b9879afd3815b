"""Guarantees of a decision as sentences."""

from __future__ import annotations

from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.metrics import ClassificationMetrics

TARGETS = {
    "min_recall": "at least {target:.1%} of {label} found",
    "min_precision": "at least {target:.1%} of the alerts for {label} right",
    "max_alerts": "at most {target:.1%} of all rows given {label}",
    "cost": "the lowest cost, a missed {label} costing {target:g} false alarms",
}
COUNTED = {  # rows that a guarantee rests on
    "min_recall": "rows of {label}",
    "min_precision": "alerts",
    "max_alerts": "rows",
}


def promise(decision: Decision, metrics: ClassificationMetrics, split: str) -> str | None:
    """A sentence for each target of a decision: what backs it, and what the metrics of a split come to.

    None for a decision without targets.
    """
    sentences = []
    for guarantee in decision.targets:
        target = TARGETS[guarantee.rule].format(label=guarantee.label, target=guarantee.target)
        if guarantee.rule == "cost":
            sentences.append(f"Its threshold has {target}, on {guarantee.rows:,} validation rows.")
            continue
        evidence = _evidence(guarantee, joint=len(decision.targets) > 1)
        opening = "Promise kept" if guarantee.backed else "Promise NOT backed"
        sentences.append(f"{opening}: {target} ({evidence}); on {split} {_achieved(guarantee, metrics)}.")
    return " ".join(sentences) or None


def _evidence(guarantee: Guarantee, joint: bool) -> str:
    """Why a target is guaranteed, or why not. `joint`: it is one of several."""
    rows = COUNTED[guarantee.rule].format(label=guarantee.label)
    if guarantee.conflict:
        return "it cannot hold together with the others"
    if guarantee.provisional:
        return "its threshold is set on rows that also chose the model"
    if guarantee.backed:
        together = ", together with the others" if joint else ""
        return f"{guarantee.confidence:.0%} sure{together}, on {guarantee.rows:,} new {rows} or more"
    hint = ""
    if guarantee.needed:
        enough = guarantee.needed <= guarantee.rows
        hint = (
            "; the model does not separate well enough" if enough else f"; about {guarantee.needed:,} would be enough"
        )
    return f"{guarantee.rows:,} held-out {rows} are too few{hint}"


def _achieved(guarantee: Guarantee, metrics: ClassificationMetrics) -> str:
    """The metric that a rule is about."""
    label = guarantee.label
    if guarantee.rule == "min_recall":
        value = metrics.recall_by_class[label]
    elif guarantee.rule == "min_precision":
        value = metrics.precision_by_class[label]
    else:
        column = list(metrics.support_by_class).index(label)
        value = sum(row[column] for row in metrics.confusion) / metrics.rows
    return "unknown" if value is None else f"{value:.1%}"
