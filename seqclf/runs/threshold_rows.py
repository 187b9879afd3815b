"""Validation rows after the training: they set weights of heads, and held out or cross-fitted the threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqclf.config.build import locate_subclass
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console
from seqclf.evaluation.choose_decision import has_guaranteed_rule
from seqclf.evaluation.decision import CHOSEN, CROSS_FITTED, HELD_OUT
from seqclf.evaluation.holdout import HEADS, chosen_by_validation, fifths, resolve_holdout
from seqclf.evaluation.scores import Scores
from seqclf.models.ensemble import networks_of
from seqclf.models.network import SequenceNetwork, cross_fits
from seqclf.settings.data import ALL_FOLDS
from seqclf.settings.decision import AUTO
from seqclf.settings.training import TrainConfig
from seqclf.training.resume import rows_of
from seqclf.training.task import SequenceTask

HEAD_PATIENCE = 3  # validations, where the config says auto


def reason_to_hold_out(config: TrainConfig) -> str | None:
    """Return the reason of `chosen_by_validation` for a training, whose network class is imported."""
    network: Any = locate_subclass(config.model["_target_"], SequenceNetwork, "model._target_")
    return chosen_by_validation(config.model_dump(), not cross_fits(network, config.model.get("members", 1)))


def with_holdout(config: TrainConfig) -> TrainConfig:
    """Return the config with a number as `decision.holdout`. The trainings of folds hold out no rows."""
    reason = None if config.data.split.fold == ALL_FOLDS else reason_to_hold_out(config)
    return config.model_copy(update={"decision": resolve_holdout(config.decision, reason)})


def with_head_patience(config: TrainConfig, positive: str | None) -> TrainConfig:
    """Return the config with a number or None as `head_patience`: None where validation rows may set a threshold.

    `positive`: the positive class of the data, None if it has none.
    """
    is_other = config.model["_target_"] != HEADS or bool(config.structure) or config.data.split.fold == ALL_FOLDS
    is_off = positive is not None or has_guaranteed_rule(config.decision) or is_other
    chosen = None if is_off else HEAD_PATIENCE
    return config.model_copy(update={"head_patience": chosen}) if config.head_patience == AUTO else config


def asked_recipe(config: TrainConfig) -> dict[str, Any]:
    """Return the recipe of a training, with `decision.holdout=auto` where auto gives the number of the config."""
    asked = config.model_copy(update={"decision": config.decision.model_copy(update={"holdout": AUTO})})
    return (asked if with_holdout(asked).decision == config.decision else config).recipe()


def all_rows_set_thresholds(config: TrainConfig) -> bool:
    """Return True if all validation rows may set a threshold, now or later, by scores in which they chose nothing."""
    is_whole = config.decision.holdout == 0 or not has_guaranteed_rule(config.decision)
    return is_whole and reason_to_hold_out(config) is None


def all_cross_fit(network: SequenceNetwork) -> bool:
    """Return True if all that validation sets in a network can be cross-fitted."""
    parts = networks_of(network)
    return all(cross_fits(type(part), len(parts)) for part in parts)


def fit_to_validation(task: SequenceTask, validation: Split) -> tuple[str | None, dict[str, Tensor]]:
    """Let a trained network read the validation rows.

    Returns what they set in words, None if they set nothing, and the buffers that they set, with the values before.
    """
    rows, before = rows_of(task, validation), {name: buffer.clone() for name, buffer in task.model.named_buffers()}
    found = [part.fit_to_validation(rows) for part in networks_of(task.model)] if len(rows) else []
    texts = [text for text in found if text is not None]
    if not texts:
        return None, {}
    chosen = networks_of(task.model)[0].set_by_validation
    console.print(f"{chosen}: {'; '.join(texts)}", soft_wrap=True)
    return chosen, {name: old for name, old in before.items() if not torch.equal(old, task.model.get_buffer(name))}


def cross_fitted(network: Scores, task: SequenceTask, validation: Split, *, weighs_heads: bool) -> Scores:
    """Return scores with the fifth of each validation row, and the split `threshold` of all validation rows.

    Its logits are cross-fitted if validation set weights of heads (`weighs_heads`).
    """
    outputs = network.splits["validation"]._replace(fold=fifths(validation.labels, validation.groups))
    logits: np.ndarray | None = outputs.logits
    if weighs_heads:
        logits = task.model.cross_fitted_logits(rows_of(task, validation), outputs.fold)
    if logits is None:  # a custom class sets something that it cannot leave out
        return network
    crossed = outputs._replace(logits=logits.astype(outputs.logits.dtype, copy=False))
    return replace(network, splits={**network.splits, "validation": outputs, THRESHOLD: crossed})


def basis_of(network: Scores, config: TrainConfig, *, weighs_heads: bool) -> str:
    """Return the kind of the rows that set thresholds (see `Guarantee`)."""
    rows = network.splits.get(THRESHOLD)
    if rows is None:
        return CHOSEN if weighs_heads or reason_to_hold_out(config) else HELD_OUT
    return CROSS_FITTED if weighs_heads and rows.fold is not None else HELD_OUT
