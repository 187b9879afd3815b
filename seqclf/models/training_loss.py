"""The loss that a network is trained by, and the costs of rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.errors import InputError, first_line

Loss = Callable[[Tensor, Tensor], Tensor]  # logits (N, C) and labels (N,) → mean loss


class TrainingLoss(NamedTuple):
    """`logits`: (B, C) float32. `loss`: that of these logits, for scores. `total`: what is minimised."""

    logits: Tensor
    loss: Tensor
    total: Tensor


def row_costs(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss (N,) of each row. Their mean is the loss of all rows, for the losses of this package.

    >>> row_costs(torch.nn.CrossEntropyLoss(), torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]))
    tensor([0.6931, 0.3133])
    """
    if hasattr(loss, "row_costs"):
        return loss.row_costs(logits, labels)
    if getattr(loss, "reduction", None) == "mean":  # as losses of PyTorch have it
        of_rows = copy.copy(loss)
        of_rows.reduction = "none"  # type: ignore[attr-defined]
        return of_rows(logits, labels)
    try:
        return torch.func.vmap(lambda row, label: loss(row[None], label[None]))(logits, labels)
    except RuntimeError as error:
        raise InputError(
            "loss",
            f"model=adaptive needs the loss of each row, and {type(loss).__name__} gives none ({first_line(error)})",
            "add a method row_costs(logits, labels)",
        ) from None
