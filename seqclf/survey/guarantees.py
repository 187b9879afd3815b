"""Guarantees that the rows can back: how many of each label training holds out, and how many a recall needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.holdout import holdout_rows, units_by_class
from seqclf.evaluation.thresholds import recall_holds, threshold_for_recall
from seqclf.system.json_result import JsonResult

RECALLS = (0.8, 0.9)  # values of decision.min_recall


@dataclass(frozen=True, kw_only=True)
class LabelEvidence(JsonResult):
    """Evidence for guarantees of one label. `held_out`: its units. `backed`: by recall, whether these are enough."""

    label: str
    held_out: int
    backed: dict[float, bool]


@dataclass(frozen=True, kw_only=True)
class GuaranteeSurvey(JsonResult):
    """Evidence for a guaranteed recall of each label, alone and with the `confidence`.

    `holdout`: the fraction of the validation rows that training holds out. `unit`: of what is counted: "row", or
    "group" or "sequence" where one row is drawn from each group, or from each distinct sequence. `needed`: held-out
    units by recall. `labels`: fewest units first.
    """

    confidence: float
    holdout: float
    unit: str
    needed: dict[float, int | None]
    labels: list[LabelEvidence]


def survey_guarantees(dataset: Dataset, holdout: float, confidence: float) -> GuaranteeSurvey:
    """Count what `train` would hold out of validation. `holdout`, `confidence`: of conf/decision."""
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, holdout, validation.groups)
    group = group_codes(None if validation.groups is None else validation.groups[held_out])
    unit = "row" if group is None else "sequence" if validation.group_names is None else "group"
    counts = units_by_class(validation.labels[held_out], group, len(dataset.classes)).tolist()
    none, no_label = np.empty(0), np.empty(0, bool)
    return GuaranteeSurvey(
        confidence=confidence,
        holdout=holdout,
        unit=unit,
        needed={recall: threshold_for_recall(none, no_label, recall, confidence).needed for recall in RECALLS},
        labels=[
            LabelEvidence(
                label=label,
                held_out=count,
                backed={recall: recall_holds(count, count, recall, confidence) for recall in RECALLS},
            )
            for label, count in sorted(zip(dataset.classes, counts, strict=True), key=lambda entry: entry[1])
        ],
    )
