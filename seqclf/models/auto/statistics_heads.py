"""Heads of means and statistics of sequences: ridge regression in closed form, and a small perceptron."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.batching.batches import SplitRows
from seqclf.data.field_spec import FieldSpec, kind_of, size_of, static_specs
from seqclf.errors import InputError
from seqclf.models.auto.front_end import MAX_COUNTED, FrontEnd, FrontOutputs
from seqclf.models.auto.head import Head, require_statistics
from seqclf.models.auto.ridge import fit_ridge, rows_per_group
from seqclf.models.network import Fields, HostLengths
from seqclf.models.streaming import HeadStep

MAX_STATIC_IDS = 2000  # ids of a static field that a linear head tells apart, the most frequent ones
MIN_DEVIATION = 0.01  # added to the deviation of a mean; bounds the factor of a feature that hardly varies
MAX_SCALED = 5.0  # deviations at which a scaled mean is clipped
FEATURE_DROPOUT = 0.5  # dropout probability of the features of a head that is trained by gradients
BINS = 8
HIDDEN_SIZE = 64
NOISE = 0.1  # standard deviation of the noise in training, in deviations of a statistic
BINNED_DROPOUT = 0.5
# Penalty of the norm of a statistic's weights, times the square root of the number of training rows. It selects the
# statistics that the class depends on (group lasso, Yuan and Lin 2006). Without it, two statistics that tell a class
# together drown among forty: average precision on generated tables 0.78, with it 0.87 (docs/log.md).
SELECTION = 0.7
MIN_WIDTH = 0.05  # smallest width of a bin, in deviations of a statistic


def static_ids(fields: Sequence[FieldSpec]) -> dict[str, int]:
    """Return the number of ids that a linear head tells apart of each static field with a large vocabulary."""
    large = [spec for spec in static_specs(fields) if not kind_of(spec).has_numbers and size_of(spec) > MAX_COUNTED]
    return {spec["name"]: min(size_of(spec), MAX_STATIC_IDS) for spec in large}


class KernelsHead(Head):
    """Linear function of means of kernels, plain statistics and large static ids: (B, M + S' + I) → logits (B, C).

    With `closed_form`, the weights are buffers that `fit` sets by ridge regression. Leave-one-out logits choose the
    penalty and calibrate the logits (see `fit_ridge`), and rows of one group are left out together. Without, an
    optimizer trains the weights: for many rows the regression takes too long.
    """

    reads_means = True

    center: Tensor
    scale: Tensor

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int, *, closed_form: bool):
        super().__init__(front, fields, num_classes)
        self.closed_form = closed_form
        means = front.mean_size if self.reads_means else 0
        self.plain_size, self.ids = front.plain_size, static_ids(fields)
        size = means + front.plain_size + sum(self.ids.values())
        require_statistics(size)
        self.register_buffer("center", torch.zeros(means))
        self.register_buffer("scale", torch.ones(means))
        weight, bias = torch.zeros(num_classes, size), torch.zeros(num_classes)
        if closed_form:
            self.register_buffer("weight", weight)
            self.register_buffer("bias", bias)
        else:
            self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def features(self, means: Tensor, statistics: Tensor, static: Mapping[str, Tensor]) -> Tensor:
        """Return the inputs (B, M + S' + I) of the linear function. `static`: (B,) ids of each large static field."""
        scaled = ((means[:, : len(self.center)] - self.center) * self.scale).clamp(-MAX_SCALED, MAX_SCALED)
        hot = [static[name][:, None] == torch.arange(size, device=means.device) for name, size in self.ids.items()]
        return torch.cat([scaled, statistics[:, : self.plain_size], *(part.float() for part in hot)], dim=1)

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: FrontOutputs) -> Tensor:
        features = self.features(reading.means, reading.statistics, fields)
        if self.training and not self.closed_form:
            features = functional.dropout(features, FEATURE_DROPOUT)
        return functional.linear(features, self.weight, self.bias)

    def streaming(self) -> HeadStep:
        return HeadStep(self)

    @torch.no_grad()
    def fit(self, rows: SplitRows, means: Tensor, statistics: Tensor) -> None:
        """Set the scales of the features, and in closed form the weights."""
        means = means[:, : len(self.center)]
        if means.shape[1]:
            self.center.copy_(means.mean(0))
            self.scale.copy_(1 / (means.std(0, unbiased=False) + MIN_DEVIATION))
        if not self.closed_form:
            return
        static = {name: torch.from_numpy(np.array(rows.split.sequences.static[name])) for name in self.ids}
        features, labels, groups = self.features(means, statistics, static).cpu(), rows.labels, rows.split.groups
        weights = rows.weights
        if groups is not None and len(kept := _rows_of_groups(groups, features.shape[1])) < len(labels):
            features, labels, groups = features[kept], labels[kept], groups[kept]
            weights = None if weights is None else weights[kept]
        ridge = fit_ridge(features, labels, len(self.bias), groups, weights)
        # The bias joins the centre of the features in float64.
        prior = torch.from_numpy(np.log(rows.class_weights))
        self.weight.copy_(ridge.weight.T)
        self.bias.copy_(ridge.bias - ridge.mean @ ridge.weight + prior)


class LinearHead(KernelsHead):
    """`KernelsHead` without the kernels: plain statistics and large static ids (B, S' + I) → logits (B, C)."""

    reads_means = False


def _rows_of_groups(groups: np.ndarray, features: int) -> np.ndarray:
    """Return a random sample with at most `rows_per_group` rows of each group (N,)."""
    order = np.random.default_rng(0).permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    sizes = np.unique(groups, return_counts=True)[1]
    place = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[place < rows_per_group(sizes, features)])


class StatisticsHead(Head):
    """Perceptron on plain statistics, each with its position in quantile bins: (B, S') → logits (B, C).

    The position in a bin rises from -1/2 to 1/2 (piecewise linear encoding, Gorishniy et al. 2022).
    """

    edges: Tensor
    selection: Tensor

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int):
        super().__init__(front, fields, num_classes)
        self.size = self.read_size(front)
        require_statistics(self.size)
        self.register_buffer("edges", torch.zeros(self.size, BINS + 1))
        self.register_buffer("selection", torch.zeros(()))
        self.hidden = nn.Linear(self.size * (BINS + 1), HIDDEN_SIZE)
        self.dropout = nn.Dropout(BINNED_DROPOUT)
        self.output = nn.Linear(HIDDEN_SIZE, num_classes)

    @staticmethod
    def read_size(front: FrontEnd) -> int:
        return front.plain_size  # S'

    def encoded(self, statistics: Tensor) -> Tensor:
        """Return the statistics and their positions in the bins (B, S' (BINS + 1))."""
        low, high = self.edges[:, :-1], self.edges[:, 1:]
        ramps = ((statistics[..., None] - low) / (high - low).clamp(min=MIN_WIDTH)).clamp(0, 1) - 0.5
        return torch.cat([statistics, ramps.flatten(1)], dim=1)

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: FrontOutputs) -> Tensor:
        statistics = reading.statistics[:, : self.size]
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
        self.edges.copy_(torch.from_numpy(np.quantile(statistics[:, : self.size].cpu().numpy(), at, axis=0).T))


class CategoriesHead(StatisticsHead):
    """`StatisticsHead` that reads the numbers by category too: (B, S) → logits (B, C).

    It stands beside the other head, because statistics that tell nothing cost the head that reads them a part of its
    score where rows are few, and the weights of the heads leave out the one that is worse.
    """

    @staticmethod
    def read_size(front: FrontEnd) -> int:
        if front.statistic_size == front.plain_size:
            raise InputError("model.heads", "has categories, which reads numbers by category", "remove it")
        return front.statistic_size
