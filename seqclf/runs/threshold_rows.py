"""Rows that set the threshold of a run: held-out rows of validation, or all its rows with cross-fitted logits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from seqclf.config.targets import locate_subclass
from seqclf.data.splitting.options import ALL_FOLDS
from seqclf.data.storage.dataset import THRESHOLD, Dataset
from seqclf.data.storage.store import Split
from seqclf.evaluation.decisions.choose_decision import GUARANTEED_RULES, parse_rule
from seqclf.evaluation.decisions.decision import CHOSEN, CROSS_FITTED, HELD_OUT
from seqclf.evaluation.decisions.holdout import chosen_by_validation, fifths, resolve_holdout
from seqclf.evaluation.scores import Scores
from seqclf.models.network import SequenceNetwork
from seqclf.runs.head_weights import rows_for
from seqclf.training.module import SequenceTask
from seqclf.training.options import TrainConfig


def reason_to_hold_out(config: TrainConfig) -> str | None:
    """Return the reason of `chosen_by_validation` for a training, whose network class is imported."""
    network = locate_subclass(config.model["_target_"], SequenceNetwork, "model._target_")
    return chosen_by_validation(config.model_dump(), network)


def with_holdout(config: TrainConfig) -> TrainConfig:
    """Return the config with a number as `decision.holdout`. The trainings of all folds hold out half."""
    reason = ALL_FOLDS if config.data.split.fold == ALL_FOLDS else reason_to_hold_out(config)
    return config.model_copy(update={"decision": resolve_holdout(config.decision, reason)})


def cross_fits(config: TrainConfig, dataset: Dataset) -> bool:
    """Return True if all validation rows set the threshold, by scores in which they chose nothing."""
    rule, _ = parse_rule(config.decision, dataset.classes, dataset.positive)
    return rule in GUARANTEED_RULES and config.decision.holdout == 0 and reason_to_hold_out(config) is None


def cross_fitted(network: Scores, task: SequenceTask, validation: Split, *, weighs_heads: bool) -> Scores:
    """Return scores with the fifth of each validation row, and the split `threshold` of all validation rows.

    The logits of the split `threshold` are cross-fitted if validation set weights of heads (`weighs_heads`).
    """
    outputs = network.splits["validation"]._replace(fold=fifths(validation.labels, validation.groups))
    logits: np.ndarray | None = outputs.logits
    if weighs_heads:
        logits = task.model.cross_fitted_logits(rows_for(task, validation), outputs.fold)
    if logits is None:  # a custom class sets something that it cannot leave out
        return network
    crossed = outputs._replace(logits=logits.astype(outputs.logits.dtype, copy=False))
    return replace(network, splits={**network.splits, "validation": outputs, THRESHOLD: crossed})


def basis_of(network: Scores, config: TrainConfig, *, weighs_heads: bool) -> str:
    """Return the kind of the rows that set thresholds (see `Facts`)."""
    rows = network.splits.get(THRESHOLD)
    if rows is None:
        return CHOSEN if weighs_heads or reason_to_hold_out(config) else HELD_OUT
    return CROSS_FITTED if weighs_heads and rows.fold is not None else HELD_OUT


def threshold_line(network: Scores, basis: str, config: TrainConfig) -> str | None:
    """Return a line about the rows that set the threshold and why, None for a rule without a guarantee."""
    rule, targets = parse_rule(config.decision, network.classes, network.positive)
    if rule not in GUARANTEED_RULES:
        return None
    reason, rows = reason_to_hold_out(config), network.splits.get(THRESHOLD)
    labels = (network.splits["validation"] if rows is None else rows).labels
    of_labels = ", ".join(f"{(labels == network.classes.index(label)).sum():,} {label}" for label in targets)
    counts = f"{len(labels):,} validation rows ({of_labels})"
    if rows is None:
        return f"threshold: set by {counts}, although {reason or 'they set the weights of the heads'}"
    if rows.fold is None:
        why = reason or f"decision.holdout={config.decision.holdout:g}"
        return f"threshold: set by {counts} held out, because {why}"
    if basis == CROSS_FITTED:
        return f"threshold: set by all {counts}, whose scores come from head weights fitted without them"
    return f"threshold: set by all {counts}, because validation chooses nothing about the model"
