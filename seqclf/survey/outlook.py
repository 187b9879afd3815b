"""Outlook: what a threshold will rest on, from labels and splits alone, before any training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.data.splitting.options import ALL_FOLDS
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.terminal import console
from seqclf.evaluation.decisions.choose_decision import GUARANTEED_RULES, parse_rule
from seqclf.evaluation.decisions.holdout import (
    FOLDS_SETTING,
    folds_are_possible,
    holdout_rows,
    resolve_holdout,
    units_by_class,
)
from seqclf.evaluation.decisions.thresholds import recall_holds, rows_needed
from seqclf.evaluation.options import DecisionOptions
from seqclf.evaluation.uncertainty.design_effect import group_codes
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95  # of sure statements, if no other confidence is asked for
UNITS = {"row": "rows of {}", "group": "groups with {}", "sequence": "different sequences of {}"}


@dataclass(frozen=True, kw_only=True)
class ThresholdOutlook(JsonResult):
    """Rows of a label that will set a threshold, and the recalls that they back.

    `rows`: number of units (rows, groups or distinct sequences, see `unit`). `where`: which rows these are, and why.
    `on_average`, `sure`: largest recall that the rows back on average, and with the `confidence`. `by_folds`: number of
    units that would set the threshold in a cross-validation; None if there are no more, or if folds are not possible.
    """

    label: str
    rows: int
    unit: str
    where: str
    on_average: float
    confidence: float
    sure: float
    by_folds: int | None

    @property
    def counted(self) -> str:
        """Name of the units, such as "rows of fraud"."""
        return UNITS[self.unit].format(self.label)

    def __str__(self) -> str:
        text = f"set by {self.rows:,} {self.counted} ({self.where}), which back a recall of at most "
        text += f"{self.on_average:.2f} on average, {self.sure:.2f} with {self.confidence:.0%} confidence"
        return text + (
            "" if self.by_folds is None else f"; {self.by_folds:,} instead of {self.rows:,} with {FOLDS_SETTING}"
        )


def threshold_outlooks(
    dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any], reason: str | None
) -> list[ThresholdOutlook]:
    """Return the outlook of each label with a target, or without a target of each label that may have one.

    `settings`: config of the training as plain values. `reason`: reason to hold out rows of validation (see
    `chosen_by_validation`), None without one.
    """
    decision = resolve_holdout(decision, reason)
    rule, targets = parse_rule(decision, dataset.classes, dataset.positive)
    labels = list(targets) if rule in GUARANTEED_RULES else [dataset.positive] if dataset.positive else dataset.classes
    share, confidence = float(decision.holdout), decision.confidence or CONFIDENCE
    counts, unit = _units(dataset, "validation", share)
    where = "all of validation" if reason is None else f"all of validation, although {reason}"
    where = f"held out of validation{'' if reason is None else f', because {reason}'}" if share else where
    own = {name for name in dataset.splits if name != "train" and settings["data"].get(name)}
    by_folds: np.ndarray = sum(_units(dataset, name)[0] for name in dataset.splits if name not in own)  # type: ignore[assignment]
    if settings["data"]["split"]["fold"] == ALL_FOLDS:
        counts, where = by_folds, "all rows, each scored by a model of another fold"
    can_fold = folds_are_possible(settings)
    return [
        ThresholdOutlook(
            label=label,
            rows=(rows := int(counts[dataset.classes.index(label)])),
            unit=unit,
            where=where,
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


def show_outlook(dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any], reason: str | None) -> None:
    """Print a line for each target of a training. A decision without a target of rows has no line."""
    rule, targets = parse_rule(decision, dataset.classes, dataset.positive)
    if rule not in GUARANTEED_RULES:
        return
    for outlook in threshold_outlooks(dataset, decision, settings, reason):
        needed = rows_needed(rule, targets[outlook.label], decision.confidence)
        takes = f"; this target takes {needed:,}" if rule == "min_recall" and outlook.rows < (needed or 0) else ""
        console.print(f"threshold: {outlook}{takes}", soft_wrap=True)
