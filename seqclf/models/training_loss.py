"""Training loss of a batch, and the loss of each sequence in the batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from seqclf.errors import InputError, first_line

Loss = Callable[[Tensor, Tensor], Tensor]  # function: logits (N, C) and labels (N,) → mean loss


class TrainingLoss(NamedTuple):
    """Logits (B, C) float32 of a batch, their `loss` for metrics, and the `total` loss that training minimizes."""

    logits: Tensor
    loss: Tensor
    total: Tensor


def row_costs(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of each row (N,). For the losses of this package, their mean equals the loss of the batch.

    >>> row_costs(torch.nn.CrossEntropyLoss(), torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 0]))
    tensor([0.6931, 0.3133])
    """
    if hasattr(loss, "row_costs"):
        return loss.row_costs(logits, labels)
    if getattr(loss, "reduction", None) == "mean":  # the loss classes of PyTorch have the attribute `reduction`
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
