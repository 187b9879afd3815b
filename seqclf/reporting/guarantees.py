"""Decisions and their promises in plain words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.evaluation.decision import Decision
from seqclf.reporting.formatting import probability_text

PROMISES = {
    "min_recall": "at least {target:.1%} of {label} found",
    "min_precision": "at least {target:.1%} of the alerts for {label} right",
    "max_alerts": "at most {target:.1%} of all rows given {label}",
    "cost": "the lowest cost, a missed {label} costing {target:g} false alarms",
}
RESTS_ON = {
    "min_recall": "rows of {label}",
    "min_precision": "alerts",
    "max_alerts": "rows",
}


def decision_lines(decision: Decision, found: Mapping[str, Any], split: str) -> list[str]:
    """Each promise, what backs it, and how it stands on the scores `found` of a split."""
    lines = []
    if decision.threshold is not None:
        lines.append(f"{decision.positive} from a probability of {probability_text(decision.threshold)} on")
    for target in decision.targets:
        rule, label = target["rule"], target["label"]
        promise = PROMISES[rule].format(**target)
        if rule == "cost":
            lines.append(f"{promise}, on {target['rows']:,} validation rows")
            continue
        kind = RESTS_ON[rule].format(label=label)
        if target.get("conflict"):
            backed = "NOT kept: it cannot be together with the others"
        elif target.get("provisional"):
            backed = "NOT backed: its threshold is set on rows that also chose the model"
        elif target["backed"]:
            together = ", together with the others" if len(decision.targets) > 1 else ""
            backed = f"{target['confidence']:.0%} sure{together}, on {target['rows']:,} new {kind} or more"
        else:
            wanted = f"; some {target['needed']:,} would do" if target["needed"] else ""
            if target["needed"] and target["needed"] <= target["rows"]:
                wanted = "; the model does not separate well enough"
            backed = f"NOT backed: {target['rows']:,} {kind} kept apart (decision.holdout) are too few{wanted}"
        lines.append(f"{promise} ({backed}); on {split} {reached(rule, label, found)}")
    return lines


def reached(rule: str, label: str, found: Mapping[str, Any]) -> str:
    """What a rule's figure came to."""
    if rule == "min_recall":
        value = found["recall_by_class"][label]
    elif rule == "min_precision":
        value = found["precision_by_class"][label]
    else:
        place = list(found["support_by_class"]).index(label)
        value = sum(row[place] for row in found["confusion"]) / found["rows"]
    return "unknown" if value is None else f"{value:.1%}"
