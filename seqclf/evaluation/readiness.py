"""Readiness of a model for use: reasons against it, from the rules of its alarms, its guarantees and its baseline."""

from __future__ import annotations

from seqclf.evaluation.alarms import CHANCE, NO_POSITIVE, NOT_BETTER, USELESS_ALERTS
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.results import SplitMetrics
from seqclf.evaluation.target_results import BROKEN

REASONS = {  # by kind of alarm
    NO_POSITIVE: "no row tells its recall",
    "never_predicted": "there are labels that it never predicts",
    CHANCE: "it is not shown to be better than chance",
    "hidden_recall": "its accuracy hides a low recall",
    USELESS_ALERTS: "its alerts are hardly better than random ones",
    "below_majority": "always saying the largest class is right as often",
    NOT_BETTER: "it is not shown to beat a model that ignores the order",
}


def reasons_against(metrics: SplitMetrics, decision: Decision, split: str, *, is_apart: bool = True) -> list[str]:
    """Return why a model should not be used yet, as clauses, the gravest first. Empty if nothing speaks against it.

    `metrics`: of the `split` that it is judged by, with all alarms. `is_apart`: that split shares no group and no time
    with those before it.
    """
    reasons = [REASONS.get(alarm.kind, alarm.text) for alarm in metrics.alarms]
    if any(result.status == BROKEN for result in metrics.targets or ()):
        reasons.append(f"its guarantee does not hold on {split}")
    elif any(target.rule != "cost" and not target.backed for target in decision.targets):
        reasons.append("its guarantee is not backed")
    if metrics.used_for:
        reasons.append(f"the {split} rows that judge it also chose its {' and '.join(metrics.used_for)}")
    if not is_apart:
        reasons.append(f"{split} shares groups or times with the rows before it")
    return list(dict.fromkeys(reasons))
