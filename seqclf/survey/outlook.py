"""Outlook: what a threshold will rest on, from labels and splits alone, before any training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console
from seqclf.evaluation.choose_decision import GUARANTEED_RULES, has_guaranteed_rule, parse_rule
from seqclf.evaluation.decision import COUNTED
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.holdout import folds_setting, holdout_rows, resolve_holdout
from seqclf.evaluation.targets import CONFIDENCE
from seqclf.evaluation.thresholds import confidence_each, recall_holds, rows_needed, unit_weights
from seqclf.settings.data_settings import ALL_FOLDS
from seqclf.settings.decision_settings import DecisionOptions
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class ThresholdOutlook(JsonResult):
    """Rows of a label that will set a threshold, and the recalls that they back.

    `rows`: number of units that are `counted`, such as "rows of yes", before the training. `where`: which rows, and
    why. `on_average`, `sure`: largest recall, of whole per cent, that they back on average, and with the `confidence`;
    None where none, and for other rules. `needed`: units that the target takes, None if no more. `by_folds`: units with
    the overrides `folds`, None if folds are no remedy.
    """

    rule: str
    label: str
    rows: int
    counted: str
    where: str
    on_average: float | None
    confidence: float
    sure: float | None
    needed: int | None
    by_folds: int | None
    folds: str | None

    def __str__(self) -> str:
        rows, by_alerts = f"{self.rows:,} {self.counted}", self.rule == "min_precision"
        text = f"set by {rows} ({self.where})"
        if by_alerts:
            text = f"set by alerts, whose number only the training tells ({self.where}: {rows})"
        if self.on_average is not None:
            text += f", which back a recall of at most {self.on_average:.2f} on average"
        if self.sure is not None:
            text += f", {self.sure:.2f} with {self.confidence:.0%} confidence"
        if self.by_folds is not None:
            text += f"; {self.by_folds:,} instead of {self.rows:,} with {self.folds}"
        return text + (f"; this target takes {self.needed:,}{' alerts' * by_alerts}" if self.needed else "")


def threshold_outlooks(
    dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any], reason: str | None
) -> list[ThresholdOutlook]:
    """Return the outlook of each label with a target, or without a target of each label that may have one.

    `settings`: config of the training as plain values. `reason`: see `chosen_by_validation`.
    """
    decision = resolve_holdout(decision, reason)
    rule, targets = parse_rule(decision, dataset.classes, dataset.positive)
    if rule not in GUARANTEED_RULES:
        rule, targets = "min_recall", {}
    confidence = decision.confidence or CONFIDENCE
    each = confidence_each(confidence, max(1, len(targets))) or confidence
    split, share = dataset.splits["validation"], float(decision.holdout)
    chosen = holdout_rows(split.labels, share, split.groups) if share else np.ones(len(split.labels), bool)
    where = "held out of validation" if share else "all of validation"
    if not (is_backed := reason is None or bool(share and not decision.provisional)):
        chosen, where = (~chosen, "validation without the held-out rows") if share else (chosen, where)
    if reason is not None:
        where += f", {'' if is_backed else 'which back no statement, '}because {reason}"
    cut = [rows for name, rows in dataset.splits.items() if name == "train" or not settings["data"].get(name)]
    (labels, group), of_folds = _rows([split], chosen), _rows(cut)
    if by_folds := settings["data"]["split"]["fold"] == ALL_FOLDS:
        (labels, group), where, is_backed = of_folds, "all rows, each scored by a model of another fold", True
    unit = None if group is None else "sequence" if split.group_names is None else "group"
    folds = None if decision.confidence else folds_setting(settings)
    found = []
    for label in list(targets) or ([dataset.positive] if dataset.positive else dataset.classes):
        index = None if rule == "max_alerts" else dataset.classes.index(label)
        rows, more = _units(labels, group, index), _units(*of_folds, index)
        counted = COUNTED[unit, "max_alerts" if index is None else "min_recall"].format(label)
        can_be_sure = is_backed and not by_folds
        average, sure = None, None
        if is_backed and rule == "min_recall":
            average, sure = 100 * rows // (rows + 1) / 100, _largest_sure(rows, each) if can_be_sure else None
        needed = rows_needed(rule, targets[label], decision.confidence and each) if targets else None
        needed = needed if (can_be_sure if decision.confidence else is_backed) and (needed or 0) > rows else None
        gain = more if folds and more > rows else None
        found.append(
            ThresholdOutlook(rule, label, rows, counted, where, average, confidence, sure, needed, gain, folds)
        )
    return found


def _rows(splits: Sequence[Split], chosen: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray | None]:
    groups = [rows.groups for rows in splits if rows.groups is not None]
    labels = np.concatenate([rows.labels for rows in splits])
    return labels[chosen], group_codes(np.concatenate(groups)[chosen]) if groups else None


def _units(labels: np.ndarray, group: np.ndarray | None, index: int | None) -> int:
    """Return the number of units with rows of a class, or of all units."""
    is_counted = np.ones(len(labels), bool) if index is None else labels == index
    return round(float(unit_weights(is_counted, group).sum()))


def _largest_sure(rows: int, confidence: float) -> float:
    """Return the largest recall, of whole per cent, that `rows` rows back with a confidence."""
    return next((share / 100 for share in range(99, 0, -1) if recall_holds(rows, rows, share / 100, confidence)), 0.0)


def show_outlook(dataset: Dataset, decision: DecisionOptions, settings: Mapping[str, Any], reason: str | None) -> None:
    """Print a line for each target of a training."""
    if has_guaranteed_rule(decision):
        for outlook in threshold_outlooks(dataset, decision, settings, reason):
            console.print(f"threshold: {outlook}", soft_wrap=True)
