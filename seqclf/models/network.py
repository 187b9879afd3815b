"""Networks: the whole of a classifier, whatever is inside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.errors import InputError
from seqclf.models.interface import completed
from seqclf.models.training_loss import Loss, TrainingLoss


class SequenceNetwork(nn.Module):
    """Base class of networks: fields of tokens → logits (B, C).

    A constructor takes `fields` (the specs of the inputs), `num_classes` and the arguments of its config, by name. The
    logits of a sequence must depend on nothing but its tokens. All methods but `forward` have defaults.

    Subclassing is a convenience: any `nn.Module` with this `forward` is a network, and may bring any of these methods.

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

    # True if it stops reading a sequence once its halting score reaches `threshold`. It then has `at_thresholds` too.
    halts: bool = False
    threshold: float = math.inf

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray | None) -> Tensor:
        """Return logits (B, C).

        `fields[name]`: (B, T) int64 or (B, T, D) float32. `lengths`: (B,) int64. `host_lengths`: the same as a NumPy
        array, because packing needs lengths on the host and copying them back would wait for the device. None during
        the export to ONNX.
        """
        raise NotImplementedError

    def training_loss(
        self,
        fields: Mapping[str, Tensor],
        lengths: Tensor,
        host_lengths: np.ndarray | None,
        labels: Tensor,
        loss: Loss,
    ) -> TrainingLoss:
        """Return the logits and the loss of a batch. A network may minimise more than the loss of its logits."""
        logits = self(fields, lengths, host_lengths).float()
        cost = loss(logits, labels)
        return TrainingLoss(logits, cost, cost)

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        """Start the embedding of the field `name` from pretrained `vectors` (size, D).

        Raises InputError in a network that cannot.
        """
        network = f"{type(self).__module__}.{type(self).__qualname__}"
        problem = f"{network} has no method load_vectors(name, vectors)"
        raise InputError(f"data.fields.{name}.vectors", problem, "add one, or remove vectors")

    def independent_parts(self) -> list[nn.Module]:
        """Return the networks inside that learn each as if alone: this one, or the members of an ensemble."""
        return [self]

    def at_thresholds(
        self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray, thresholds: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return logits (B, K, C) and the tokens read (B, K) at each of K `thresholds`, of a network that halts."""
        raise NotImplementedError

    def halting_margin(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        """Return how far (B,) the halting scores of each sequence stay away from the threshold."""
        return torch.full(lengths.shape, math.inf)

    def step_form(self) -> Any:
        """Return the network that reads chunk by chunk in the export (see `ChunkStep`), None if there is none."""
        return None

    def walkthrough_stages(self, recorded: Any, batch: Any) -> Iterable[Any]:
        """Return the stages (`Stage`) between inputs and logits that `seqclf walkthrough` shows."""
        return ()


def as_network(module: Any) -> SequenceNetwork:
    """Return a module as a network, with the default methods where it has none of its own."""
    return completed(module, SequenceNetwork)
