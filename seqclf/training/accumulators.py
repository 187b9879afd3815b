"""What is kept while an epoch runs: a confusion matrix and the loss of each split, and validation's logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat


class Tally(Metric):
    """Confusion matrix and mean loss of an epoch, summed over ranks.

    A single update per step; every metric of the epoch follows from `compute()`. Losses are weighted by batch size,
    as batches of sequences are of unequal sizes.
    """

    full_state_update = False
    confusion: Tensor
    loss: Tensor

    def __init__(self, num_classes: int):
        super().__init__()
        self.num_classes = num_classes
        # Persistent: a run resumed inside an epoch goes on counting.
        counts = torch.zeros(num_classes**2, dtype=torch.int64)
        self.add_state("confusion", counts, dist_reduce_fx="sum", persistent=True)
        self.add_state("loss", torch.zeros(()), dist_reduce_fx="sum", persistent=True)

    def update(self, logits: Tensor, labels: Tensor, loss: Tensor) -> None:
        """`logits`: (B, C); `labels`: (B,); `loss`: the batch's mean."""
        cells = labels * self.num_classes + logits.argmax(dim=-1)
        self.confusion += torch.bincount(cells, minlength=self.num_classes**2)
        self.loss += loss.detach().float() * len(labels)

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        # A run resumed after the last step of an epoch computes before it updates, which torchmetrics warns of.
        self._update_count = int(self.confusion.any())

    def compute(self) -> tuple[Tensor, Tensor]:
        """The confusion matrix (C, C), true class by row, and the mean loss."""
        rows = self.confusion.sum().clamp(min=1)
        return self.confusion.view(self.num_classes, self.num_classes), self.loss / rows


class Ranks(Metric):
    """The logits and labels of all rows of an epoch, from all ranks: what scores of the order of rows need."""

    full_state_update = False
    logits: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("logits", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """`logits`: (B, C); `labels`: (B,)."""
        self.logits.append(logits)
        self.labels.append(labels)

    def compute(self) -> tuple[Tensor, Tensor]:
        """Logits (N, C) and labels (N,)."""
        return dim_zero_cat(self.logits), dim_zero_cat(self.labels)
