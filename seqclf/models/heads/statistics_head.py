"""Statistics head: a small perceptron on binned statistics and counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.split_rows import SplitRows
from seqclf.data.field_spec import FieldSpec
from seqclf.models.frozen.front_end import FrontEnd, Reading
from seqclf.models.heads.head import Head, HeadStep, require_statistics
from seqclf.models.network import Fields, HostLengths

BINS = 8
HIDDEN_SIZE = 64
NOISE = 0.1  # standard deviation of the noise in training, in deviations of a statistic
DROPOUT = 0.5
# Penalty of the norm of a statistic's weights, times the square root of the number of training rows. It selects the
# statistics that the class depends on (group lasso, Yuan and Lin 2006). Without it, two statistics that tell a class
# together drown among forty: average precision on generated tables 0.78, with it 0.87 (docs/log.md).
SELECTION = 0.7
MIN_WIDTH = 0.05  # smallest width of a bin, in deviations of a statistic


class StatisticsHead(Head):
    """Perceptron on statistics, each with its position in quantile bins: (B, S) → logits (B, C).

    The position in a bin rises from -1/2 to 1/2 (piecewise linear encoding, Gorishniy et al. 2022).
    """

    edges: Tensor
    selection: Tensor

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int):
        super().__init__(front, fields, num_classes)
        require_statistics(front.statistic_size)
        self.register_buffer("edges", torch.zeros(front.statistic_size, BINS + 1))
        self.register_buffer("selection", torch.zeros(()))
        self.hidden = nn.Linear(front.statistic_size * (BINS + 1), HIDDEN_SIZE)
        self.dropout = nn.Dropout(DROPOUT)
        self.output = nn.Linear(HIDDEN_SIZE, num_classes)

    def encoded(self, statistics: Tensor) -> Tensor:
        """Return the statistics and their positions in the bins (B, S (BINS + 1))."""
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        ramps = ((statistics[..., None] - low) / (high - low).clamp(min=MIN_WIDTH)).clamp(0, 1) - 0.5
        return torch.cat([statistics, ramps.flatten(1)], dim=1)

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: Reading) -> Tensor:
        """Return logits (B, C). See `Head.forward`."""
        statistics = reading.statistics
        if self.training:
            statistics = statistics + NOISE * torch.randn_like(statistics)
        return self.output(self.dropout(self.hidden(self.encoded(statistics)).relu()))

    def penalty(self) -> Tensor:
        """Return the sum of the norms of the weights of each statistic, times a factor."""
        weights = self.hidden.weight
        columns = len(self.edges)
        groups = torch.cat([weights[:, :columns, None], weights[:, columns:].unflatten(1, (columns, BINS))], dim=2)
        return self.selection * groups.square().sum((0, 2)).clamp(min=1e-12).sqrt().sum()

    def streaming(self) -> HeadStep:
        return HeadStep(self)

    def fit(self, rows: SplitRows, means: Tensor, statistics: Tensor) -> None:
        """Set the edges of the bins to quantiles of the training rows, and the selection. See `Head.fit`."""
        self.selection.fill_(SELECTION / len(rows) ** 0.5)
        at = np.linspace(0, 1, BINS + 1)
        self.edges.copy_(torch.from_numpy(np.quantile(statistics.cpu().numpy(), at, axis=0).T))
