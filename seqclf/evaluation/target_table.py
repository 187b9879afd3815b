"""Tables of targets: the thresholds that other targets than the configured one have on the held-out rows.

Whoever picks a target from a table picks on the held-out rows, so all rows of a table must hold together. The rules
min_recall and max_alerts divide the risk, 1 - confidence, evenly among the targets (Bonferroni). The rule min_precision
already divides the risk among its candidate thresholds, and a candidate that fails a target fails each higher one, so
more targets cost nothing. The configured target was set before the rows were seen: it keeps its threshold and its
confidence, and is not among the rows that hold together. `tests/evaluation/test_target_table.py` simulates both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.evaluation.choose_decision import counted_rows, margin_of
from seqclf.evaluation.decision import Decision, Guarantee, expit
from seqclf.evaluation.thresholds import THRESHOLDS
from seqclf.system.json_result import JsonResult

TARGETS = {  # rule → targets, the hardest first
    "min_recall": (0.99, 0.98, 0.95, *(percent / 100 for percent in range(90, 15, -5))),
    "min_precision": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "max_alerts": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
}
MAX_ROWS = 12  # rows of a table beside the configured target; if recall targets have more thresholds, the lowest


@dataclass(frozen=True, kw_only=True)
class TargetRow(JsonResult):
    """Alerts at the threshold of one target, counted on all held-out rows.

    `threshold`: probability of the label; with several classes, its probability beside the most probable other label.
    `precision`, `recall`: None if undefined. `backed`: True if the held-out rows back the target. `asked`: True for the
    configured target.
    """

    target: float
    threshold: float
    alerts_per_1000: float
    precision: float | None
    recall: float | None
    backed: bool
    asked: bool


@dataclass(frozen=True, kw_only=True)
class TargetTable(JsonResult):
    """Targets of one rule for one label, by rising threshold.

    `confidence`: probability with which the targets of all backed rows hold together, and those of the tables of other
    labels; the configured target holds with this confidence by itself. `confidence_each`: value of
    `decision.confidence` with which a run sets the threshold of a row. `unit`: see `Guarantee`.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"unit"})

    rule: str
    label: str
    confidence: float
    confidence_each: float
    unit: str | None
    rows: list[TargetRow]

    def around_asked(self, most: int) -> list[TargetRow]:
        """Return the row of the configured target and its neighbours, at most `most` rows."""
        place = next(number for number, row in enumerate(self.rows) if row.asked)
        first = max(0, min(place - most // 2, len(self.rows) - most))
        return self.rows[first : first + most]


def target_tables(
    decision: Decision, logits: np.ndarray, labels: np.ndarray, classes: list[str], group: np.ndarray | None = None
) -> list[TargetTable]:
    """Return a table for each guarantee of `decision`, from the held-out rows that set its thresholds.

    `logits`, `labels`, `group`: as in `choose_decision`. With several classes, the other labels keep their thresholds.
    """
    offsets = np.array(decision.offsets or np.zeros(len(classes)))
    if decision.positive_index is not None:
        offsets -= offsets[1 - decision.positive_index]  # the threshold of two classes is the margin of their logits
    scaled, tables = decision.scaled(logits), list[TargetTable]()
    for asked in decision.targets:
        if asked.rule in TARGETS:
            index = classes.index(asked.label)
            scores = margin_of(scaled + offsets, index) - offsets[index]
            counted = counted_rows(asked.rule, labels == index, group)
            risk = (1 - asked.confidence) / len(decision.targets)
            tables.append(_table(asked, scores, labels == index, counted, float(-offsets[index]), risk))
    return tables


def _table(
    asked: Guarantee, scores: np.ndarray, is_label: np.ndarray, counted: np.ndarray, shipped: float, risk: float
) -> TargetTable:
    """Return the table of one guarantee. `shipped`: threshold of the decision on `scores` (N,), which are margins."""
    targets = TARGETS[asked.rule]
    confidence = 1 - (risk if asked.rule == "min_precision" else risk / len(targets))

    def row(target: float, value: float, backed: bool, is_asked: bool = False) -> TargetRow:
        is_alert = scores > value
        alerts, hits, positives = int(is_alert.sum()), int((is_alert & is_label).sum()), int(is_label.sum())
        return TargetRow(
            target=target,
            threshold=expit(value),
            alerts_per_1000=1000 * alerts / max(1, len(scores)),
            precision=hits / alerts if alerts else None,
            recall=hits / positives if positives else None,
            backed=backed and not asked.provisional,
            asked=is_asked,
        )

    found: dict[float, tuple[float, bool]] = {}
    for target in targets:
        threshold = THRESHOLDS[asked.rule](scores[counted], is_label[counted], target, confidence)
        # Of targets with the same threshold, keep the hardest one that is backed, else the easiest one.
        if target != asked.target and not found.get(threshold.value, (0.0, False))[1]:
            found[threshold.value] = target, threshold.backed
    rows = [row(target, value, backed) for value, (target, backed) in sorted(found.items())[:MAX_ROWS]]
    rows = sorted([*rows, row(asked.target, shipped, asked.backed, True)], key=lambda entry: entry.threshold)
    return TargetTable(
        rule=asked.rule,
        label=asked.label,
        confidence=asked.confidence,
        confidence_each=confidence,
        unit=asked.unit,
        rows=rows,
    )
