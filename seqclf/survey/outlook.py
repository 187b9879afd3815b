"""Outlook: what a threshold will rest on, from labels and splits alone, before any training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.decisions.choose_decision import GUARANTEED_RULES, parse_rule
from seqclf.evaluation.decisions.holdout import ADAPTIVE, holdout_rows, units_by_class
from seqclf.evaluation.decisions.thresholds import recall_holds, rows_needed
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95  # of sure statements, if no other confidence is asked for
FOLDS = "data.split.by=fold data.split.fold=all"
UNITS = {"row": "rows of {}", "group": "groups with {}", "sequence": "different sequences of {}"}
UNDIVIDED = ("time", "distinct", "fold")  # values of data.split.by whose rows folds would divide, or that are folds


@dataclass(frozen=True, kw_only=True)
class ThresholdOutlook(JsonResult):
    """Rows of a label that will set a threshold, and the recalls that they back.

    `rows`: number of units (rows, groups or distinct sequences, see `unit`). `held_out`: True if they are held out of
    validation, False if they are all of validation or of the folds. `on_average`, `sure`: largest recall that the rows
    back on average, and with the `confidence`. `by_folds`: rows that would set the threshold in the folds of a
    cross-validation; None if there are no more, or if folds are not possible.
    """

    label: str
    rows: int
    unit: str
    held_out: bool
    on_average: float
    confidence: float
    sure: float
    by_folds: int | None

    @property
    def counted(self) -> str:
        """Name of the units, such as "rows of fraud"."""
        return UNITS[self.unit].format(self.label)

    def __str__(self) -> str:
        where = "held out of validation" if self.held_out else "all of validation" if self.rows else "in validation"
        text = f"{self.rows:,} {self.counted} ({where}) set the threshold"
        if self.rows:
            sure = f"{self.sure:.2f} with {self.confidence:.0%} confidence"
            text += f"; they back a recall of at most {self.on_average:.2f} on average, {sure}"
        return text + ("" if self.by_folds is None else f"; {self.by_folds:,} instead of {self.rows:,} with {FOLDS}")


def threshold_outlooks(
    dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any]
) -> list[ThresholdOutlook]:
    """Return the outlook of each label with a target, or without a target of each label that may have one.

    `decision`: options whose `holdout` is a number. `settings`: config of the training as plain values.
    """
    rule, targets = parse_rule(decision, dataset.classes, dataset.positive)
    labels = list(targets) if rule in GUARANTEED_RULES else [dataset.positive] if dataset.positive else dataset.classes
    share, confidence = float(decision.holdout), decision.confidence or CONFIDENCE
    counts, unit = _units(dataset, "validation", share)
    own = {name for name in dataset.splits if name != "train" and settings["data"].get(name)}
    by_folds = sum(_units(dataset, name)[0] for name in dataset.splits if name not in own)
    can_fold = folds_are_possible(settings)
    return [
        ThresholdOutlook(
            label=label,
            rows=(rows := int(counts[dataset.classes.index(label)])),
            unit=unit,
            held_out=share > 0,
            on_average=rows / (rows + 1),
            confidence=confidence,
            sure=_largest_sure(rows, confidence),
            by_folds=more if can_fold and (more := int(by_folds[dataset.classes.index(label)])) > rows else None,
        )
        for label in labels
    ]


def _units(dataset: Dataset, split: str, share: float = 0.0) -> tuple[np.ndarray, str]:
    """Return the number of units of each class (C,) in a split, or in the `share` that is held out, and their kind."""
    rows = dataset.splits[split]
    chosen = holdout_rows(rows.labels, share, rows.groups) if share else np.ones(len(rows.labels), bool)
    group = group_codes(None if rows.groups is None else rows.groups[chosen])
    unit = "row" if group is None else "sequence" if rows.group_names is None else "group"
    return units_by_class(rows.labels[chosen], group, len(dataset.classes)), unit


def _largest_sure(rows: int, confidence: float) -> float:
    """Return the largest recall, of whole per cent, that `rows` rows back with a confidence."""
    return max(
        (share / 100 for share in range(1, 100) if recall_holds(rows, rows, share / 100, confidence)), default=0.0
    )


def folds_are_possible(settings: Mapping[str, Any]) -> bool:
    """Return True if a training with these settings could be one of folds whose rows set the threshold."""
    data, trainer = settings["data"], settings.get("trainer") or {}
    is_changed = settings.get("structure") or trainer.get("max_time") or trainer.get("callbacks")
    is_adaptive = (settings.get("model") or {}).get("_target_") == ADAPTIVE
    has_one_process = trainer.get("devices", "auto") in ("auto", 1) and trainer.get("num_nodes", 1) == 1
    is_cut = not data.get("test") and data["split"]["by"] not in UNDIVIDED
    return bool(is_cut and has_one_process and not is_changed and not is_adaptive)


def outlook_lines(dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each target of a training, none for a decision without a target of rows."""
    rule, targets = parse_rule(decision, dataset.classes, dataset.positive)
    if rule not in GUARANTEED_RULES:
        return
    for outlook in threshold_outlooks(dataset, decision, settings):
        needed = rows_needed(rule, targets[outlook.label], decision.confidence)
        yield f"threshold: {outlook}" + (f" ({needed:,} back the target)" if rule == "min_recall" else "")
