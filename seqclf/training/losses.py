"""Losses for training. Each is built with the number of training rows per class, `class_counts` (C,).

A loss is the mean over a batch of the costs of its rows, which may be weighted by class. The training step multiplies
it by `Batch.weight`, because batches of long sequences have fewer rows. Class weights are scaled to a mean of 1 over
the training rows, not over each batch, so that a row has the same weight whatever its batch mates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.config.yaml_text import label_text
from seqclf.errors import InputError


def weigh_classes(
    scheme: str | Mapping[str, float] | None, classes: Sequence[str], class_counts: Sequence[int], beta: float
) -> Tensor | None:
    """Return class weights (C,) with a mean of 1 over the training rows, or None if all are the same.

    `scheme`: `balanced` is inverse to the number n of rows of a class. `effective` is inverse to their effective
    number, (1 - beta^n) / (1 - beta) (Cui et al. 2019, Class-Balanced Loss). A mapping names weights by label, 1 for
    those it leaves out. Raises InputError on anything else.

    >>> weigh_classes("balanced", ["no", "yes"], [90, 10], beta=0.999)
    tensor([0.5556, 5.0000])
    """
    counts = torch.tensor(class_counts, dtype=torch.float64)
    if scheme is None:
        return None
    if isinstance(scheme, Mapping):
        by_label = {label_text(label): float(weight) for label, weight in scheme.items()}
        unknown = set(by_label) - set(classes)
        if unknown:
            raise InputError(f"loss.class_weights: no label '{min(unknown)}'; the labels are {', '.join(classes)}")
        weights = torch.tensor([by_label.get(label, 1.0) for label in classes], dtype=torch.float64)
        if weights.min() < 0 or weights.max() == 0:
            raise InputError("loss.class_weights: must be at least 0, and one of them above 0")
    elif scheme == "balanced":
        weights = 1 / counts
    elif scheme == "effective":
        weights = (1 - beta) / (1 - beta**counts)
    else:
        raise InputError(f"loss.class_weights={scheme}: must be null, balanced, effective or {{label: weight}}")
    return (weights / ((weights * counts).sum() / counts.sum())).float()


class RowLoss(nn.Module):
    """Base class: the weighted mean over a batch of `costs`, which each loss defines."""

    weights: Tensor | None

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float,
    ):
        super().__init__()
        self.register_buffer("weights", weigh_classes(class_weights, classes, class_counts, effective_beta))

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the costs (B,) of rows with logits (B, C) and labels (B,)."""
        raise NotImplementedError

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        costs = self.costs(logits, labels)
        return costs.mean() if self.weights is None else (costs * self.weights[labels]).mean()


class CrossEntropy(RowLoss):
    """Cross-entropy: -log p(label).

    With `label_smoothing` s the target is 1 - s + s / C for the label and s / C for the others.
    """

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float,
        label_smoothing: float,
    ):
        super().__init__(classes, class_counts, class_weights=class_weights, effective_beta=effective_beta)
        self.label_smoothing = label_smoothing

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.label_smoothing)


class Focal(RowLoss):
    """Focal loss: -(1 - p(label))^gamma log p(label), where easy rows count less (Lin et al. 2017)."""

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float,
        gamma: float,
    ):
        super().__init__(classes, class_counts, class_weights=class_weights, effective_beta=effective_beta)
        self.gamma = gamma

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        # 1 - p from the logits of the other classes: exact where p is nearly 1, and its power has a gradient there.
        is_label = functional.one_hot(labels, logits.shape[-1]).bool()
        log_all = logits.logsumexp(-1)
        log_others = logits.masked_fill(is_label, float("-inf")).logsumexp(-1)
        return (self.gamma * (log_others - log_all)).exp() * (log_all - logits[is_label])


class LogitAdjusted(RowLoss):
    """Cross-entropy of logits + tau * log(share of the class) (Menon et al. 2021, equation 10).

    Trained with the shift, the logits themselves treat classes as if they were equally frequent.
    """

    priors: Tensor

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float,
        tau: float,
        label_smoothing: float,
    ):
        super().__init__(classes, class_counts, class_weights=class_weights, effective_beta=effective_beta)
        counts = torch.tensor(class_counts, dtype=torch.float32)
        self.register_buffer("priors", tau * (counts / counts.sum()).log())
        self.label_smoothing = label_smoothing

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(
            logits + self.priors, labels, reduction="none", label_smoothing=self.label_smoothing
        )
