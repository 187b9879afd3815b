"""Validation rows that set the threshold of a guarantee: held-out rows, or all if they chose little else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.splitting.assignment import assign
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import subset
from seqclf.evaluation.choose_decision import GUARANTEED_RULES, parse_rule
from seqclf.settings.decision_settings import AUTO, DecisionOptions

# The seed is the same in all runs. A search compares runs with different seeds, which must hold out the same rows.
SEED = 0
HALF = 0.5  # fraction of validation that is held out where validation chooses more than the weights of heads
FOLDS_SETTING = "data.split.by=fold data.split.fold=all"
UNDIVIDED = ("time", "distinct", "fold")  # values of data.split.by whose parts folds would mix, or that are folds
ADAPTIVE = "seqclf.models.adaptive.AdaptiveClassifier"  # the network of this package that sets more
HEADS = "seqclf.models.auto.heads_classifier.HeadsClassifier"


def chosen_by_validation(settings: Mapping[str, Any], sets_more: bool | None = None) -> str | None:
    """Return the reason to hold out rows of validation, None if validation chooses at most the weights of heads.

    `settings`: config of a training as plain values. `sets_more`: True if validation sets more of the network,
    None to go by its name.

    >>> chosen_by_validation({"monitor": "loss"}), chosen_by_validation({"monitor": None})
    ('validation chooses the epoch (monitor)', None)
    """
    target = settings.get("model", {}).get("_target_")
    callbacks = settings.get("trainer", {}).get("callbacks") or ()
    reasons = {
        "validation chooses the epoch (monitor)": settings.get("monitor") is not None,
        "validation ends the training of heads (head_patience)": target == HEADS
        and settings.get("head_patience") not in (None, AUTO),
        "a callback watches validation (trainer.callbacks)": any("monitor" in callback for callback in callbacks),
        "validation sets more than weights of heads": target == ADAPTIVE if sets_more is None else sets_more,
        "a search chooses the settings (decision.provisional)": settings.get("decision", {}).get("provisional"),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def resolve_holdout(options: DecisionOptions, reason: str | None) -> DecisionOptions:
    """Return options with a number in place of "auto". `reason`: see `chosen_by_validation`."""
    return options.model_copy(update={"holdout": HALF if reason else 0.0}) if options.holdout == AUTO else options


def fifths(labels: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """Return the number (N,) of each row's fifth of validation. Groups stay together, and classes are spread evenly."""
    shares = {str(fifth): 0.2 for fifth in range(5)}
    return assign(labels, shares, "random" if groups is None else "group", groups, SEED)


def holdout_rows(labels: np.ndarray, share: float, groups: np.ndarray | None = None) -> np.ndarray:
    """Return a mask (N,) of the held-out rows. Groups stay together, and equal arguments give the same rows."""
    shares = {"validation": 1 - share, "threshold": share}
    return assign(labels, shares, "random" if groups is None else "group", groups, SEED) == 1


def hold_out(dataset: Dataset, options: DecisionOptions) -> Dataset:
    """Return the dataset with held-out validation rows as a split of their own, which must not choose the epoch.

    They are a stratified fraction (`options.holdout`, a number). Groups stay together, and a class keeps its only row
    in validation. None are held out if the rule has no guarantee. A `provisional` decision leaves the same rows out.
    """
    rule, _ = parse_rule(options, dataset.classes, dataset.positive)
    if rule not in GUARANTEED_RULES or not options.holdout:
        return dataset
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, float(options.holdout), validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    holdout = None if options.provisional else subset(validation, np.flatnonzero(held_out))
    return replace(dataset, splits={**dataset.splits, "validation": remaining}, held_out=holdout)


def folds_setting(settings: Mapping[str, Any]) -> str | None:
    """Return the overrides that let folds set the threshold of a training with these settings, None if they cannot."""
    data, trainer = settings["data"], settings.get("trainer") or {}
    is_changed = settings.get("structure") or trainer.get("max_time") or trainer.get("callbacks")
    is_adaptive = (settings.get("model") or {}).get("_target_") == ADAPTIVE
    has_one_process = trainer.get("devices", "auto") in ("auto", 1) and trainer.get("num_nodes", 1) == 1
    has_test = data.get("test") or data.get("generator")  # a generator writes a file for every split
    if has_test or data["split"]["by"] in UNDIVIDED or not has_one_process or is_changed or is_adaptive:
        return None
    # A training of folds rejects a fraction of rows to hold out.
    has_fraction = (settings.get("decision") or {}).get("holdout") not in (None, AUTO, 0)
    return f"{FOLDS_SETTING} decision.holdout={AUTO}" if has_fraction else FOLDS_SETTING
