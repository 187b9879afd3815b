"""What training minimises. Every loss is built with the training rows of each class, `class_counts` (C,).

A loss is the mean over a batch of what each row costs. The training step multiplies it by `Batch.weight`, because
batches of long sequences have fewer rows. Rows may weigh by their class. Class weights are scaled to a mean of 1 over
the training rows, not over each batch, so that a row weighs the same whatever its batch mates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.config.yaml_text import label_text
from seqclf.errors import InputError


def weigh_classes(
    chosen: str | Mapping[str, float] | None, classes: Sequence[str], class_counts: Sequence[int], beta: float
) -> Tensor | None:
    """(C,) weights, or None where all are the same.

    `balanced`: inverse to a class's rows n. `effective`: inverse to the effective number of its rows,
    (1 - beta^n) / (1 - beta) (Cui et al. 2019, Class-Balanced Loss). A mapping: as given, 1 for labels left out.
    """
    counts = torch.tensor(class_counts, dtype=torch.float64)
    if chosen is None:
        return None
    if isinstance(chosen, Mapping):
        given = {label_text(label): float(weight) for label, weight in chosen.items()}
        unknown = set(given) - set(classes)
        if unknown:
            raise InputError(f"loss.class_weights: no label '{min(unknown)}'; the labels are {', '.join(classes)}")
        weights = torch.tensor([given.get(label, 1.0) for label in classes], dtype=torch.float64)
        if weights.min() < 0 or weights.max() == 0:
            raise InputError("loss.class_weights: must be at least 0, and one of them above")
    elif chosen == "balanced":
        weights = 1 / counts
    elif chosen == "effective":
        weights = (1 - beta) / (1 - beta**counts)
    else:
        raise InputError(f"loss.class_weights={chosen}: must be null, balanced, effective or {{label: weight}}")
    return (weights / ((weights * counts).sum() / counts.sum())).float()


class RowLoss(nn.Module):
    """The weighted mean of `costs`, which each loss defines. Checkpoints of older versions give no `effective_beta`."""

    weights: Tensor | None

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float = 0.999,
    ):
        super().__init__()
        self.register_buffer("weights", weigh_classes(class_weights, classes, class_counts, effective_beta))

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(B, C) logits and (B,) labels → (B,)."""
        raise NotImplementedError

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        costs = self.costs(logits, labels)
        return costs.mean() if self.weights is None else (costs * self.weights[labels]).mean()


class CrossEntropy(RowLoss):
    """-log p(label); with `label_smoothing` s the target is 1 - s + s / C for the label and s / C for the others."""

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float = 0.999,
        label_smoothing: float,
    ):
        super().__init__(classes, class_counts, class_weights=class_weights, effective_beta=effective_beta)
        self.label_smoothing = label_smoothing

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.label_smoothing)


class Focal(RowLoss):
    """-(1 - p(label))^gamma log p(label): rows that are right already count less (Lin et al. 2017)."""

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float = 0.999,
        gamma: float,
    ):
        super().__init__(classes, class_counts, class_weights=class_weights, effective_beta=effective_beta)
        self.gamma = gamma

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        # 1 - p by the other classes' logits: exact where p is nearly 1, and its power has a gradient there.
        chosen = functional.one_hot(labels, logits.shape[-1]).bool()
        log_all = logits.logsumexp(-1)
        log_others = logits.masked_fill(chosen, float("-inf")).logsumexp(-1)
        return (self.gamma * (log_others - log_all)).exp() * (log_all - logits[chosen])


class LogitAdjusted(RowLoss):
    """Cross-entropy of logits + tau * log(share of the class): what the model itself says then treats classes as if
    they were equally frequent (Menon et al. 2021, equation 10)."""

    priors: Tensor

    def __init__(
        self,
        classes: Sequence[str],
        class_counts: Sequence[int],
        *,
        class_weights: str | Mapping[str, float] | None,
        effective_beta: float = 0.999,
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
