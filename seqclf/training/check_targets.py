"""The `_target_`s of a training config: importable, of the right class, with arguments that exist and fit.

Importing them loads PyTorch but reads no data, so a slip is reported before hours of preparation.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from seqclf.config.argument_types import check_values
from seqclf.config.instantiate import build, check_arguments, locate_subclass
from seqclf.errors import InputError
from seqclf.training.options import TrainConfig

NOT_OF_MODEL = {"_target_", "members"}  # `members` counts networks, see `build_classifier`
NOT_OF_OPTIMIZER = {"_target_", "schedule", "weight_decay"}  # `make_optimizer` sets the decay for each group of weights


def check_targets(config: TrainConfig) -> None:
    """Raise InputError, which names the key, unless model, loss and optimizer can be built from their config."""
    check_target("model", config.model, nn.Module, {"fields", "num_classes"}, ignored=NOT_OF_MODEL)
    check_target("loss", config.loss, nn.Module, {"classes", "class_counts"}, ignored={"_target_"})
    check_optimizer(config.optimizer)


def check_target(
    key: str,
    settings: Mapping[str, Any],
    kind: type,
    provided: Collection[str],
    *,
    ignored: Collection[str],
) -> None:
    """Raise InputError unless `settings` name a subclass of `kind`, arguments that it takes, and values it allows.

    The class declares the values by its annotations (see `check_values`). `provided`: arguments that training adds.
    `ignored`: keys that are no arguments.
    """
    located = locate_subclass(settings["_target_"], kind, f"{key}._target_")
    arguments = {name: value for name, value in settings.items() if name not in ignored}
    check_arguments(key, located, arguments, provided)
    check_values(key, located, arguments)


def check_optimizer(settings: Mapping[str, Any]) -> None:
    """Raise InputError unless the optimizer can be built; its values are tried on one weight."""
    located = locate_subclass(settings["_target_"], torch.optim.Optimizer, "optimizer._target_")
    arguments = {name: value for name, value in settings.items() if name not in NOT_OF_OPTIMIZER}
    if "fused" not in inspect.signature(located).parameters:
        arguments.pop("fused", None)  # `make_optimizer` drops it too
    check_arguments("optimizer", located, arguments, {"params"})
    weight = nn.Parameter(torch.zeros(1))
    try:
        build({"_target_": settings["_target_"], **arguments}, torch.optim.Optimizer, params=[weight])
    except InputError as error:  # begins with the target
        raise InputError(f"optimizer._target_={error}") from None
