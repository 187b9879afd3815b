"""Labels and probabilities of a split → its verdict: scores, parts, intervals, alarms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seqclf.evaluation.alarms import alarms
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.intervals import score_intervals
from seqclf.evaluation.metrics import calibration_error, classification_metrics, softmax
from seqclf.evaluation.slices import slice_scores

MOST_MISTAKES = 20  # that are shown


class SplitOutputs(NamedTuple):
    """Rows of a split that a model was run on. `logits`: (N, C); `labels`, `lengths` (before anything was cut): (N,);
    `truncated`: (N,) bool."""

    logits: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray


class Outcome(NamedTuple):
    """A finished training: what it scored on each split, how it decides, and the verdicts, the blocks of metrics.json.
    The last split is the one that is judged."""

    scored: dict[str, SplitOutputs]
    decision: Decision
    metrics: dict[str, Any]

    @property
    def split(self) -> str:
        return list(self.scored)[-1]

    @property
    def last(self) -> SplitOutputs:
        return self.scored[self.split]

    @property
    def probabilities(self) -> np.ndarray:
        return self.decision.probabilities(self.last.logits)

    @property
    def predicted(self) -> np.ndarray:
        return self.decision.choose(self.last.logits)


def evaluate_split(
    scored: SplitOutputs, classes: list[str], positive: str | None, decision: Decision, intervals: bool = False
) -> dict[str, Any]:
    """The block of a split in metrics.json. `intervals`: of the scores, too."""
    labels = scored.labels.astype(np.int64)
    probabilities = decision.probabilities(scored.logits)
    predicted = decision.choose(scored.logits)
    found = classification_metrics(labels, probabilities, classes, positive, predicted)
    found |= slice_scores(labels, predicted, probabilities, scored.lengths, scored.truncated, classes, positive)
    if intervals:
        found["intervals"] = score_intervals(labels, predicted, probabilities, classes, positive)
    raised = alarms(found, classes, positive, decision.rule != "argmax")
    found["alarms"] = [alarm._asdict() for alarm in raised]
    found["majority"] = _majority(found, classes)
    return found


def _majority(found: dict[str, Any], classes: list[str]) -> dict[str, Any]:
    """What always saying the largest class of this split would score."""
    label = max(classes, key=lambda name: found["support_by_class"][name])
    support = found["support_by_class"][label]
    present = sum(count > 0 for count in found["support_by_class"].values())
    accuracy = support / found["rows"]
    f1 = 2 * accuracy / (1 + accuracy)
    return {
        "label": label,
        "accuracy": accuracy,
        "recall": 1 / present,
        "precision": accuracy / present,
        "f1": f1 / present,
        "f1_of_label": f1,
    }


def calibration(scored: dict[str, SplitOutputs], temperature: float, applied: bool) -> dict[str, Any]:
    """The calibration error of each split without and with the `temperature` that validation asks for."""
    errors = {
        split: [calibration_error(own.labels, softmax(own.logits / scale)) for scale in (1.0, temperature)]
        for split, own in scored.items()
    }
    return {
        "temperature": temperature,
        "applied": applied,
        "ece": {split: {"before": before, "after": after} for split, (before, after) in errors.items()},
    }
