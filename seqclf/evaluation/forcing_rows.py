"""Rows that force the threshold of a recall: the lowest positives, and the alerts that each of them costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.target_table import is_much_work
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonResult

MAX_ROWS = 10  # lowest positives of each label that are left out in turn
MAX_RATIO = 0.5  # alerts without a row / alerts with it; at most this ratio makes the label of the row worth a check


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
            kept = everything != row
            other = choose_decision(
                options,
                rows.logits[kept],
                rows.labels[kept],
                classes,
                decision.positive,
                None if group is None else group[kept],
            )
            without = 1000 * float((other.choose(rows.logits) == index).mean())
            name = str(row) if rows.ids is None else str(rows.ids[row])
            check = without <= MAX_RATIO * alerts and alerts > 0
            yield ForcingRow(target.label, name, float(scores[row]), alerts, without, check)
