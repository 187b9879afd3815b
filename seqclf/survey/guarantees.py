"""Evidence for recall guarantees: the held-out rows of each label, and the number of rows that a guarantee needs."""

from __future__ import annotations

from dataclasses import dataclass

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.decisions.holdout import holdout_rows, units_by_class
from seqclf.evaluation.decisions.thresholds import recall_holds, rows_needed
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.system.json_result import JsonResult

RECALLS = (0.8, 0.9)  # recalls (decision.min_recall) for which the survey checks whether a guarantee is possible


@dataclass(frozen=True, kw_only=True)
class LabelEvidence(JsonResult):
    """Evidence for recall guarantees of one label.

    `held_out`: number of held-out units (rows, groups or distinct sequences) of the label. `backed`: dict recall → True
    if the held-out units suffice to guarantee this recall.
    """

    label: str
    held_out: int
    backed: dict[float, bool]


@dataclass(frozen=True, kw_only=True)
class GuaranteeSurvey(JsonResult):
    """Evidence for a guaranteed recall of each label.

    Each guarantee is for a single label and has the given `confidence`. `holdout`: fraction of the validation rows that
    set the threshold, 1 if each is scored without it. `unit`: unit that is counted: "row", "group" or "sequence". Only
    one row of each group counts, and equal sequences count once. `needed`: dict recall → number of held-out units that
    are needed to guarantee this recall. `labels`: evidence for each label, sorted by rising number of held-out units.
    """

    confidence: float
    holdout: float
    unit: str
    needed: dict[float, int | None]
    labels: list[LabelEvidence]


def survey_guarantees(dataset: Dataset, holdout: float, confidence: float) -> GuaranteeSurvey:
    """Count the validation rows of each label that would set the threshold of a training.

    Compare the counts with the numbers of rows that recall guarantees need. `holdout`, `confidence`: values of the
    config group `decision`, but a `holdout` of 1 if no rows are held out and all set the threshold.
    """
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, holdout, validation.groups) | (holdout == 1)
    group = group_codes(None if validation.groups is None else validation.groups[held_out])
    unit = "row" if group is None else "sequence" if validation.group_names is None else "group"
    counts = units_by_class(validation.labels[held_out], group, len(dataset.classes)).tolist()
    return GuaranteeSurvey(
        confidence=confidence,
        holdout=holdout,
        unit=unit,
        needed={recall: rows_needed("min_recall", recall, confidence) for recall in RECALLS},
        labels=[
            LabelEvidence(
                label=label,
                held_out=count,
                backed={recall: recall_holds(count, count, recall, confidence) for recall in RECALLS},
            )
            for label, count in sorted(zip(dataset.classes, counts, strict=True), key=lambda entry: entry[1])
        ],
    )
