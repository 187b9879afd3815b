"""Table of targets: the thresholds that other targets than the configured one have on the held-out rows.

Whoever picks a target from the table picks on the held-out rows, so all its targets must hold together. The rules
min_recall and max_alerts divide the risk evenly among the targets (Bonferroni). The rule min_precision already divides
it among its candidate thresholds, and a candidate that fails a target fails each higher one, so more targets cost
nothing. The configured target was set before the rows were seen: it holds by itself, not together with the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.decisions.choose_decision import counted_rows, margin_of
from seqclf.evaluation.decisions.decision import Decision, expit
from seqclf.evaluation.decisions.thresholds import THRESHOLDS, threshold_reached
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.system.json_result import JsonResult

TARGETS = {  # rule → targets, the hardest first
    "min_recall": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.35, 0.3, 0.2),
    "min_precision": (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "max_alerts": (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
}


@dataclass(frozen=True)
class TargetRow(JsonResult):
    """Alerts for `label` at the threshold of one target, counted on all held-out rows.

    `asked`: True for the configured target. `backed`: True if the held-out rows back the target. A target that they do
    not back has the threshold at which they reach it by themselves. `confidence`: value of `decision.confidence` with
    which a run has the threshold of a backed target. `threshold`: probability of the label;
    with several classes, beside the most probable other label alone. `precision`, `recall`: None if undefined.
    """

    label: str
    target: float
    confidence: float
    threshold: float
    alerts_per_1000: float
    precision: float | None
    recall: float | None
    backed: bool
    asked: bool


def target_rows(decision: Decision, held_out: SplitOutputs, classes: list[str]) -> Iterator[TargetRow]:
    """Yield the rows of each guarantee of `decision`, by rising threshold, from the rows that set its thresholds.

    With several classes, the other labels keep their thresholds.
    """
    offsets = np.array(decision.offsets or np.zeros(len(classes)))
    if decision.positive_index is not None:
        offsets -= offsets[1 - decision.positive_index]  # the threshold of two classes is the margin of their logits
    for asked in decision.targets:
        index, targets = classes.index(asked.label), TARGETS.get(asked.rule, ())
        scores = margin_of(decision.scaled(held_out.logits) + offsets, index) - offsets[index]
        is_label = held_out.labels == index
        counted = counted_rows(asked.rule, is_label, group_codes(held_out.groups))
        divisor = 1 if asked.rule == "min_precision" else max(1, len(targets))
        confidence = 1 - (1 - asked.confidence) / divisor
        each, shipped = 1 - (1 - confidence) / len(decision.targets), float(-offsets[index])
        found: dict[float, tuple[float, float, bool, bool]] = {}
        for target in targets:
            threshold = THRESHOLDS[asked.rule](scores[counted], is_label[counted], target, each)
            value = threshold.value
            if not threshold.backed:
                value = threshold_reached(asked.rule, scores, is_label, target)
            # Of targets with the same threshold, keep the hardest one that is backed, else the hardest one.
            if target != asked.target and (value not in found or (threshold.backed and not found[value][2])):
                found[value] = target, confidence, threshold.backed and not asked.provisional, False
        points = [(value, *row) for value, row in found.items() if row[2] or value != shipped]
        points += [(shipped, asked.target, asked.confidence, asked.backed, True)] if targets else []
        for value, target, used, backed, is_asked in sorted(points):
            is_alert = scores > value
            alerts, hits, positives = (int(part.sum()) for part in (is_alert, is_alert & is_label, is_label))
            precision, recall = hits / alerts if alerts else None, hits / positives if positives else None
            rate = 1000 * alerts / max(1, len(scores))
            yield TargetRow(asked.label, target, used, expit(value), rate, precision, recall, backed, is_asked)
