"""Base class of heads. A head maps what the front end read in a sequence to logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from seqclf.batching.batches import SplitRows
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.auto.front_end import FrontEnd, FrontOutputs
from seqclf.models.network import Fields, HostLengths
from seqclf.models.streaming import HeadStep


class Head(nn.Module):
    """Base class of heads: fields and their reading by the front end → logits (B, C).

    The constructor gets `front` (the front end, whose sizes it may read), `fields` (specs of the model's inputs),
    `num_classes`, and the other keys of its entry in `model.heads`. A head without parameters is not trained: `fit`
    sets its buffers, and members of an ensemble share it. Logits must depend only on the tokens of the sequence.

    >>> class Levels(Head):
    ...     def __init__(self, front, fields, num_classes):
    ...         super().__init__(front, fields, num_classes)
    ...         self.linear = nn.Linear(front.statistic_size, num_classes)
    ...
    ...     def forward(self, fields, lengths, host_lengths, reading):
    ...         return self.linear(reading.statistics)
    """

    reads_windows: ClassVar[bool] = False  # True if `forward` reads `FrontOutputs.windows`
    reads_means: ClassVar[bool] = False  # True if `forward` reads `FrontOutputs.means`
    is_stopped = False  # True if training leaves the head as it is (see `HeadStopping`)

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int):
        super().__init__()

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: FrontOutputs) -> Tensor:
        """Return logits (B, C). `reading`: what the front end read in the batch.

        `fields`: (B, T, …), static fields (B,) or (B, D); in training, number fields of tokens may be missing.
        `lengths`: (B,) int64. `host_lengths`: the same as a NumPy array, None during the export.
        """
        raise NotImplementedError

    def fit(self, rows: SplitRows, means: Tensor, statistics: Tensor) -> None:
        """Set the buffers of the head by N training rows. Called once, before the first optimizer step.

        `means`: (N, M) float32 means of the kernels; (N, 0) if no head that is fitted reads them. `statistics`: (N, S)
        float32 scaled statistics.
        """

    def penalty(self) -> Tensor | None:
        """Return a penalty that training adds to the loss of the head, or None."""
        return None

    def embedding_layer(self) -> nn.Module | None:
        """Return the layer whose input (B, D) is a part of the embedding of a sequence, None for no part."""
        return None

    def streaming(self) -> HeadStep | None:
        """Return the streaming form of the head, or None for a head that needs whole sequences."""
        return None

    @property
    def is_trained(self) -> bool:
        """True if the head has weights that an optimizer changes."""
        return any(True for _ in self.parameters())


def require_statistics(inputs: int) -> None:
    """Raise InputError if a head of statistics has no `inputs`, as for words alone."""
    if not inputs:
        problem = "has a head of statistics, and there are neither numbers nor few ids"
        raise InputError("model.heads", problem, "remove it")
