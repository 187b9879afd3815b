"""Base class of networks. A network maps a batch of sequences to logits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.split_rows import SplitRows
from seqclf.models.training_loss import Loss, TrainingLoss

Fields = Mapping[str, Tensor]  # name of a field → (B, T, …), static fields (B, …)
HostLengths = np.ndarray | None  # (B,) on the CPU; None in an export


class SequenceNetwork(nn.Module):
    """Base class of networks: the fields of a batch of sequences → logits (B, C).

    The constructor gets `fields` (the field specs of the inputs), `num_classes`, and the arguments in the network's
    config as keyword arguments. The logits of a sequence must depend only on the tokens of the sequence. A subclass
    must define `forward`, and may define `outputs`, `training_loss`, `fit_to`, `fit_to_validation` with
    `cross_fitted_logits`, and `streaming`. An attribute `members` lists modules that are trained independently.

    >>> class Mean(SequenceNetwork):
    ...     def __init__(self, fields, num_classes):
    ...         super().__init__()
    ...         self.scores = nn.Embedding(50, num_classes)
    ...
    ...     def forward(self, fields, lengths, host_lengths):
    ...         (tokens,) = fields.values()
    ...         return self.scores(tokens).sum(dim=1) / lengths[:, None]
    >>> network = Mean([{"name": "word", "kind": "category", "size": 50}], num_classes=3)
    >>> network({"word": torch.ones(2, 4, dtype=torch.int64)}, torch.tensor([4, 4]), None).shape
    torch.Size([2, 3])
    """

    # True if the constructor and `forward` get the static fields too, whose values are (B,) or (B, D).
    reads_static: bool = False
    # `halts` is True if the network may stop before the end of a sequence, at the first halting score that reaches
    # `threshold`. A network with `halts` must define `at_thresholds`.
    halts: bool = False
    threshold: float = math.inf
    # Factor by which the network shortens sequences before most of its work. A training that is limited by its tokens
    # may then take as many times more steps.
    shortening: float = 1.0
    # Names of outputs beside the logits, one number for each row, such as the tokens that were read (see `outputs`).
    extra_outputs: ClassVar[tuple[str, ...]] = ()

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        """Return logits (B, C). `fields[name]`: (B, T) int64 or (B, T, D) float32. `lengths`: (B,) int64.

        `host_lengths`: the lengths as a NumPy array, because packed sequences need them on the CPU, and copying
        `lengths` from the GPU would wait for the GPU. During the export to ONNX, `host_lengths` is `None`.
        """
        raise NotImplementedError

    def outputs(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> dict[str, Tensor]:
        """Return `logits` (B, C) and each of the `extra_outputs` (B,), exported, predicted and scored by name.

        Further logits (B, C) are those of a part of the network that is a model on its own. Runs score them beside the
        network, and bundles leave them out.
        """
        return {"logits": self(fields, lengths, host_lengths)}

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        """Return the logits and the loss of a batch, which may have more terms than that of the logits."""
        logits = self(fields, lengths, host_lengths).float()
        cost = loss(logits, labels)
        return TrainingLoss(logits, cost, cost)

    def fit_to(self, rows: SplitRows) -> None:
        """Set buffers by the training rows, such as scales.

        Called once, before the first optimizer step: never after loading a checkpoint, on resuming, or after a change
        of the structure. With several ranks, all get the buffers of the first rank.
        """

    def fit_to_validation(self, rows: SplitRows) -> str | None:
        """Set buffers by validation rows, after the training. Return a text about them, or None if there are none.

        The rows are those that no decision holds out.
        """
        return None

    def cross_fitted_logits(self, rows: SplitRows, fifth: np.ndarray) -> np.ndarray | None:
        """Return logits (N, C) by what the rows of other fifths would have set, None if validation sets nothing.

        Half of validation is held out for a guarantee where a class defines `fit_to_validation` and not this method.
        `rows`: rows that `fit_to_validation` has read. `fifth`: (N,) number of each row's fifth.
        """
        return None

    @classmethod
    def cross_fits(cls, members: int = 1) -> bool:
        """Return True if the class that defines `fit_to_validation`, or one below, defines `cross_fitted_logits`.

        An `Ensemble` of such networks does not cross-fit.
        """
        owner = next(kind for kind in cls.__mro__ if {"fit_to_validation", "cross_fitted_logits"} & vars(kind).keys())
        is_one = members == 1 or owner is SequenceNetwork or hasattr(cls, "config_class")
        return is_one and "cross_fitted_logits" in vars(owner)

    def forget_validation(self) -> None:
        """Undo `fit_to_validation`, before the training of a checkpoint goes on."""

    def take_from(self, other: Any) -> None:
        """Take what validation rows have set from another network of the same settings (see `fit_to_validation`)."""

    def parts(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> dict[str, Tensor]:
        """Return the further logits of `outputs`, for the ladder of a run."""
        known, found = ("logits", *self.extra_outputs), self.outputs(fields, lengths, host_lengths)
        return {name: logits for name, logits in found.items() if name not in known}

    def at_thresholds(
        self, fields: Fields, lengths: Tensor, host_lengths: np.ndarray, thresholds: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, K, C) and numbers of tokens read (B, K) for K `thresholds`, in a network that can halt."""
        raise NotImplementedError

    def halting_margin(self, fields: Fields, lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        """Return the smallest distance between a halting score and the threshold for each sequence (B,)."""
        return torch.full(lengths.shape, math.inf)

    def streaming(self) -> Any:
        """Return the streaming form of this network (see `ChunkStep`), or `None` if there is no streaming form."""
        return None


def vote(logits: Tensor) -> Tensor:
    """Average the members' probabilities and return them as log-probabilities (B, C). `logits`: (members, B, C).

    >>> vote(torch.tensor([[[0.8, 0.2]], [[0.4, 0.6]]]).log()).softmax(dim=-1)
    tensor([[0.6000, 0.4000]])
    """
    # Average probabilities and not raw logits, because a member with larger logits would get more weight.
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(logits))
