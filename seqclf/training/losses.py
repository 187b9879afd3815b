"""Loss functions for training.

The loss of a batch is the mean cost of its rows; the training step multiplies it by `Batch.weight`, because batches of
long sequences have fewer rows. Class weights are scaled to a mean of 1 over all training rows: over each batch, the
weight of a row would depend on the other rows of its batch. The losses are dataclasses, because the checks of a
`_target_` need the generated signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn
from torch.nn import functional

from seqclf.config.build import arguments_of, build, locate_subclass
from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.base import NonNegative
from seqclf.settings.typed_text import label_text

OFFERED = ("classes", "class_counts")  # arguments that are passed to a loss if its signature contains them


def require_class_weights(value: Any) -> Any:
    """Reject class weights other than None, `balanced`, a number of 0 to 1, and a mapping label → number from 0 on."""
    is_power = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
    if value is None or value == "balanced" or is_power:
        return value
    if not isinstance(value, Mapping):
        raise RefusedValueError("must be null, balanced, a number of 0 to 1 or {label: weight}")
    for label, weight in value.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 <= weight < float("inf"):
            raise InputError(f"loss.class_weights.{label_text(label)}={weight}", "must be a number of at least 0")
    return {label_text(label): weight for label, weight in value.items()}


ClassWeights = Annotated[float | str | dict[str, float] | None, BeforeValidator(require_class_weights)]


def build_loss(loss: Mapping[str, Any], classes: Sequence[str], class_counts: Sequence[int]) -> Any:
    """Build a loss from a `_target_` dict. A loss is any module that maps logits (B, C) and labels (B,) to a mean cost.

    >>> build_loss({"_target_": "torch.nn.CrossEntropyLoss", "label_smoothing": 0.1}, ["no", "yes"], [90, 10])
    CrossEntropyLoss()
    """
    taken = arguments_of(locate_subclass(loss["_target_"], nn.Module))
    offered = zip(OFFERED, (classes, class_counts), strict=True)
    return build(loss, nn.Module, "loss._target_", **{name: value for name, value in offered if taken.accepts(name)})


def weigh_classes(
    scheme: float | str | Mapping[str, float] | None, classes: Sequence[str], class_counts: Sequence[int]
) -> Tensor | None:
    """Return class weights (C,) whose mean over the training rows is 1, or None if `scheme` is None.

    `scheme`: `balanced`, for weights inversely proportional to the numbers of training rows, a power of the inverse
    numbers from 0 (equal weights) to 1 (`balanced`), or a mapping label → weight, where an omitted label has the weight
    1. Raises InputError for any other.

    >>> weigh_classes("balanced", ["no", "yes"], [90, 10])
    tensor([0.5556, 5.0000])
    """
    counts = torch.tensor(class_counts, dtype=torch.float64)
    if scheme is None:
        return None
    if isinstance(scheme, Mapping):
        by_label = {label_text(label): float(weight) for label, weight in scheme.items()}
        if unknown := set(by_label) - set(classes):
            raise InputError("loss.class_weights", f"no label '{min(unknown)}'", f"the labels are {', '.join(classes)}")
        weights = torch.tensor([by_label.get(label, 1.0) for label in classes], dtype=torch.float64)
        if weights.min() < 0 or weights.max() == 0:
            raise InputError("loss.class_weights", "must be at least 0, and one of them above 0")
    elif scheme == "balanced":
        weights = 1 / counts
    else:
        weights = counts ** -float(scheme)
    return (weights / ((weights * counts).sum() / counts.sum())).float()


@dataclass(eq=False, repr=False)  # keep the equality and the repr of nn.Module
class RowLoss(nn.Module):
    """Base class of losses that are the mean of weighted costs over a batch. A subclass defines `costs`.

    `class_counts`: (C,) number of training rows of each label. `class_weights`: see `weigh_classes`.
    """

    classes: Sequence[str]
    class_counts: Sequence[int]
    _: KW_ONLY
    class_weights: ClassWeights = None
    weights: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()  # after the fields are set, which hold plain values
        self.register_buffer("weights", weigh_classes(self.class_weights, self.classes, self.class_counts))

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the costs (B,) of rows, given their logits (B, C) and labels (B,)."""
        raise NotImplementedError

    def row_costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the costs (B,) of rows, times the class weights."""
        costs = self.costs(logits, labels)
        # Unlike in `nn.CrossEntropyLoss(weight=…)`, they are not divided by the sum of the weights in the batch.
        return costs if self.weights is None else costs * self.weights[labels]

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        return self.row_costs(logits, labels).mean()


@dataclass(eq=False, repr=False, kw_only=True)
class CrossEntropy(RowLoss):
    """Cross-entropy loss: -log p(label).

    With `label_smoothing` s, the target probability is 1 - s + s / C for the label and s / C for each other class.
    """

    label_smoothing: Annotated[float, Field(ge=0, le=0.999)] = 0.0

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.label_smoothing)


@dataclass(eq=False, repr=False, kw_only=True)
class Focal(RowLoss):
    """Focal loss: -(1 - p(label))^gamma log p(label), low for rows that are classified well (Lin et al. 2017)."""

    gamma: NonNegative = 2.0

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        # From the logits of the other classes, 1 - p is exact for p near 1, and its powers have a gradient there.
        is_label = functional.one_hot(labels, logits.shape[-1]).bool()
        log_all = logits.logsumexp(-1)
        log_others = logits.masked_fill(is_label, float("-inf")).logsumexp(-1)
        return (self.gamma * (log_others - log_all)).exp() * (log_all - logits[is_label])


@dataclass(eq=False, repr=False, kw_only=True)
class LogitAdjusted(CrossEntropy):
    """Cross-entropy of logits + tau * log(fraction of the class) (Menon et al. 2021, equation 10).

    The trained model returns logits without this shift, which treat all classes as equally frequent.
    """

    tau: NonNegative = 1.0
    priors: Tensor = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = torch.tensor(self.class_counts, dtype=torch.float32)
        self.register_buffer("priors", self.tau * (counts / counts.sum()).log())

    def costs(self, logits: Tensor, labels: Tensor) -> Tensor:
        return super().costs(logits + self.priors, labels)


def class_weights_of(loss: nn.Module, classes: int) -> np.ndarray:
    """Return the weight (C,) of each class in a loss, at least a millionth of the largest, for a finite logarithm.

    A network learns from the classes as if each were that many times as frequent, and what is fitted beside it must do
    the same.
    """
    if isinstance(loss, LogitAdjusted):  # logits without the shift are those of classes that were that more frequent
        return (-loss.priors).exp().cpu().double().numpy()
    named = (getattr(loss, name, None) for name in ("weights", "weight"))  # the second is PyTorch's name
    weights = next((found for found in named if found is not None), None)
    if weights is None:
        return np.ones(classes)
    values = weights.detach().cpu().double().numpy()
    return np.maximum(values, 1e-6 * values.max())
