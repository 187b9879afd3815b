"""Checks of a network and a loss with code of another package, before the first epoch.

The tests of this package show for its own networks that they export, and that the logits of a sequence do not depend on
the batch that it is in. Both are easily lost, and without these checks would only show after the training or never.
Logits or costs of a wrong shape would end the first step in an error that names neither.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.config.instantiate import is_foreign, targets
from seqclf.errors import InputError, first_line
from seqclf.models.ensemble import Ensemble
from seqclf.models.export_checks import check_exportable, check_logits, describe_value, padding_error
from seqclf.training.module import SequenceTask

LARGEST_ERROR = 1e-4  # of logits; the rounding errors of another order of summation are a hundred times smaller


def check_foreign_network(task: SequenceTask, export: bool, shortest: int = 1) -> list[str]:
    """Return warnings about the network of a task, none if all of its code is of this package.

    Raises InputError, which names the class, unless its logits are (B, C) and the loss makes one number of them.
    `export`: raise it, with what to do, unless the network can be exported too. `shortest`: tokens of the shortest
    sequence of the data.
    """
    hyper: Mapping[str, Any] = task.hparams
    if foreign := _foreign_targets(hyper["loss"], "loss"):
        check_loss(task.loss, len(task.classes), foreign[0])
    foreign = _foreign_targets(hyper["model"], "model")
    if not foreign:
        return []
    network = task.model.members[0] if isinstance(task.model, Ensemble) else task.model
    fields = hyper["dataset"]["fields"]
    # First, because it runs the network as training will: an error in its code is no failure of the export.
    check_logits(network, fields, len(task.classes), foreign[0], shortest)
    error = padding_error(network, fields, foreign[0], shortest)
    if export:
        check_exportable(network, fields, foreign[0], shortest)
    if error <= LARGEST_ERROR:
        return []
    return [
        f"{foreign[0]}: the logits of a sequence change by up to {error:.1g} with its padding and batch mates, so its "
        "prediction depends on the rows that are scored with it; let the network read no token beyond lengths"
    ]


def check_loss(loss: nn.Module, num_classes: int, key: str = "loss") -> None:
    """Raise InputError, which begins with `key`, unless `loss` turns logits (B, C) and labels (B,) into one cost.

    >>> check_loss(nn.CrossEntropyLoss(), num_classes=3)
    >>> check_loss(nn.CrossEntropyLoss(reduction="none"), num_classes=3)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: loss: returns a tensor (4,) of float32; return the mean cost of the batch, a tensor ()
    """
    rows = num_classes + 1  # not the same, else a loss that takes labels for logits could pass
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, num_classes, generator=generator, requires_grad=True)
    labels = torch.arange(rows) % num_classes
    state = copy.deepcopy(loss.state_dict())  # a loss may keep statistics of the logits that it gets
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about sizes, of a loss that then fails
            cost = loss(logits, labels)
    except InputError:
        raise
    except Exception as error:  # the code of another package may raise anything
        shapes = f"logits {tuple(logits.shape)} and labels {tuple(labels.shape)}"
        raise InputError(
            key,
            f"fails on {shapes} ({type(error).__name__}: {first_line(error)})",
            "name a loss of logits and class indices, as torch.nn.CrossEntropyLoss is",
        ) from error
    finally:
        loss.load_state_dict(state)
    if not isinstance(cost, Tensor) or cost.dim() != 0 or not cost.is_floating_point():
        raise InputError(key, f"returns {describe_value(cost)}", "return the mean cost of the batch, a tensor ()")
    if not cost.requires_grad:
        raise InputError(key, "returns a cost without a gradient", "compute it by differentiable operations of logits")


def _foreign_targets(settings: Any, key: str) -> list[str]:
    return [f"{name}={target}" for name, target in targets(settings, key) if is_foreign(target)]
