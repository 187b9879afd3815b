"""What training minimises. Every loss is built with the training rows of each class, `class_counts` (C,)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.checks import label_text
from seqclf.errors import InputError


class CrossEntropy(nn.Module):
    """Mean cross-entropy over a batch.

    `class_weights`: None, `balanced` (inverse to a class's rows) or `{label: weight}`. Weights are scaled to a mean of
    1 over the training rows, not over each batch, so that a row weighs the same whatever its batch mates.
    """

    weights: Tensor | None

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        label_smoothing: float,
    ):
        super().__init__()
        counts = torch.tensor(class_counts, dtype=torch.float32)
        if class_weights is None:
            weights = None
        elif isinstance(class_weights, Mapping):
            given = {label_text(label): float(weight) for label, weight in class_weights.items()}
            unknown = set(given) - set(classes)
            if unknown:
                raise InputError(f"loss.class_weights: no label '{min(unknown)}'; the labels are {', '.join(classes)}")
            weights = torch.tensor([given.get(label, 1.0) for label in classes])
            if weights.min() < 0 or weights.max() == 0:
                raise InputError("loss.class_weights: must be at least 0, and one of them above")
        elif class_weights == "balanced":
            weights = counts.sum() / counts
        else:
            raise InputError(f"loss.class_weights={class_weights}: must be null, balanced or {{label: weight}}")
        if weights is not None:
            weights = weights / ((weights * counts).sum() / counts.sum())
        self.register_buffer("weights", weights)
        self.label_smoothing = label_smoothing

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.label_smoothing)
        return losses.mean() if self.weights is None else (losses * self.weights[labels]).mean()
