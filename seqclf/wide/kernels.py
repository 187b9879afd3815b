"""Wide path for numeric sequences: frozen random convolution kernels, a block of level statistics, and a ridge head.

Three views of the channels (the row z-scored, its first difference, its values) are convolved with the 84 kernels of
MiniRocket (Dempster et al. 2021) at exponentially growing dilations. A feature is the proportion of positions at which
a convolution exceeds a bias. The proportion is soft at the bias, because a hard one jumps with the rounding of sums,
and logits would depend on the other rows of the batch. The extreme output of each kernel (ROCKET, Dempster et al.
2020, has the largest one) finds an event that is short in a long row, where it changes no proportion by much. Every
second kernel skips the ends of a row, so that the features also tell something about the place of a pattern in its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.models.heads.views import VIEWS, Views, differences, level_statistics, make_views
from seqclf.wide import feature_path
from seqclf.wide.convolution import (
    KERNELS,
    MAX_CHANNELS,
    SOFTNESS,
    TAPS,
    Group,
    choose_channels,
    choose_dilations,
    chunk,
    deviation,
    edges,
    make_group,
    make_taps,
    multiply,
    sample_windows,
    time_major,
)
from seqclf.wide.feature_path import FeaturePath, batches, deviations
from seqclf.wide.kernel_outputs import KernelOutputs
from seqclf.wide.parallel_parts import map_parts

MAX_BIASES = 60  # biases of a kernel in a view, over all dilations: 5,040 features
MIN_BIASES = 5
MAX_PROPORTIONS = 32  # thresholds of a channel in the level block
MAX_LEVELS = 1024  # thresholds of all channels
# Variance of the extreme outputs and of the level block, as fractions of the variance of the means.
EXTREME_WEIGHT, LEVEL_WEIGHT = 0.3, 0.03
MAX_WORK = 100_000_000_000  # tokens times features of a fit
SAMPLED_VALUES = 200_000  # values of the rows that choose biases


class Kernels(FeaturePath):
    """Random kernels, level statistics and a ridge head over all number fields (B, T, D channels in total).

    Args:
        fields: Specs of the model's inputs. Fields that are not numbers are not read.
        num_classes: Number of classes C.
        dilations: Distance of the taps of each group of kernels, in tokens.
        biases: Number of biases of each kernel, per dilation.
        proportions: Number of thresholds of each channel in the level block.
    """

    title = "random kernels"

    def __init__(
        self,
        fields: Sequence[FieldSpec],
        num_classes: int,
        dilations: Sequence[int],
        biases: Sequence[int],
        proportions: int,
    ):
        numbers = [field for field in fields if field["kind"] == "number"]
        width = sum(field["width"] for field in numbers)
        size = mean_features(biases) + extreme_features(dilations) + level_features(width, proportions)
        super().__init__(numbers, num_classes, size=size)
        self.dilations, self.biases, self.proportions = list(dilations), list(biases), proportions
        channels = min(width, MAX_CHANNELS)
        self.selects, self.width = channels < width, width
        for index, count in enumerate(self.biases):
            # The last columns are for padding, for the ends of a row, and for the bias.
            self.register_buffer(f"taps_{index}", torch.zeros(VIEWS, len(KERNELS) * count, TAPS * channels + 3))
            if self.selects:
                self.register_buffer(f"channels_{index}", torch.zeros(channels, dtype=torch.int64))
        self.register_buffer("slopes", torch.zeros(2 * width, proportions))
        self.register_buffer("thresholds", torch.zeros(2 * width, proportions))

    def settings(self) -> dict[str, Any]:
        """Return dilations, biases and proportions."""
        return {"dilations": self.dilations, "biases": self.biases, "proportions": self.proportions}

    def index_limits(self) -> dict[str, int]:
        """Return the buffers of channels. See `WidePath.index_limits`."""
        return {f"channels_{group}": self.width for group in range(len(self.dilations)) if self.selects}

    def features(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float64: first the features of kernels, then the level block."""
        values = self.values(fields)
        rows = max(1, chunk(values) // values.shape[-1])
        parts = list(zip(values.split(rows), lengths.split(rows), strict=True))
        with torch.autocast(values.device.type, enabled=False):
            groups = [make_group(*group) for group in self.convolutions()]
            return torch.cat(map_parts(partial(self._features, groups), parts))

    def _features(self, groups: Sequence[Group], values: Tensor, lengths: Tensor) -> Tensor:
        views = make_views(values, lengths)
        return torch.cat([self._outputs(groups, views, lengths), self.levels(views, lengths)], dim=1)

    def _outputs(self, groups: Sequence[Group], views: Views, lengths: Tensor) -> Tensor:
        """(B, F) float64 features of the kernels over the positions that they count.

        They are the means of the soft comparison with each bias, then the extreme output of each kernel.
        """
        means, extremes = [], []
        positions = torch.arange(views.valid.shape[-1], device=lengths.device)[:, None]
        padded = time_major(views.stacked, max(self.dilations))
        for dilation, same in groupby(groups, key=lambda group: group.dilation):
            edge = edges(lengths, dilation)
            outer = (positions < edge) | (positions >= lengths - edge)
            flags = torch.stack([positions >= lengths, outer]).float()
            for group in same:
                sums, largest = multiply(padded, flags, group)
                counts = torch.where(group.skips, lengths - 2 * edge, lengths).double()
                means.append(group.means(sums, counts[:, None]).flatten(1, 2))
                extremes.append(group.extremes(largest))
        kernels = [torch.cat(means, dim=1), deviation(torch.cat(extremes, dim=1))]
        return torch.cat([part.flatten(0, 1) for part in kernels]).T

    def levels(self, views: Views, lengths: Tensor) -> Tensor:
        """Return the features (B, F) float64 of the level block."""
        values = torch.cat([views.raw, differences(views.raw)], dim=1)[:, :, None]
        soft = (values * self._buffer("slopes")[:, :, None] + self._buffer("thresholds")[:, :, None]).clamp(0, 1)
        sums = torch.where(views.valid[:, None], soft, 0).sum(-1).flatten(1)
        return torch.cat([sums.double() / lengths[:, None].double(), level_statistics(views, lengths)], dim=1)

    def onnx_form(self) -> ExportedKernels:
        """Return the form of the path that is exported."""
        return ExportedKernels(self)

    def convolutions(self) -> Iterator[tuple[int, Tensor | None, Tensor]]:
        """Yield dilation, channels (None for all) and taps of each group of kernels."""
        for index, dilation in enumerate(self.dilations):
            channels = self._buffer(f"channels_{index}") if self.selects else None
            yield dilation, channels, self._buffer(f"taps_{index}")

    def _buffer(self, name: str) -> Tensor:
        return self.get_buffer(name)

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True if there is a number field."""
        return any(field["kind"] == "number" for field in fields)

    @classmethod
    def unfitted(cls, sequences: Ragged, fields: Sequence[FieldSpec], num_classes: int) -> Self:
        """Return kernels for training rows. With many rows or long ones, there are fewer features."""
        width = sum(field["width"] for field in fields if field["kind"] == "number")
        proportions = max(1, min(MAX_PROPORTIONS, MAX_LEVELS // (2 * width)))
        longest, repeat = int(sequences.lengths.max()), width > MAX_CHANNELS
        most = extreme_features(choose_dilations(longest, MAX_BIASES, repeat=repeat)[0])
        biases = budget(len(sequences), int(sequences.offsets[-1]), most + level_features(width, proportions))
        dilations, counts = choose_dilations(longest, biases, repeat=repeat)
        return cls(fields, num_classes, dilations, counts, proportions)

    def scales(self, features: Tensor) -> Tensor:
        """Return the factors (F,) float64 of the features.

        Means with a small deviation count less than others, but not as much less as without factors. The extreme
        outputs and the level block have fixed fractions of the variance of the means.
        """
        sizes = [mean_features(self.biases), extreme_features(self.dilations)]
        means, *others = deviations(features).split([*sizes, features.shape[1] - sum(sizes)])
        means = means.clamp(min=0.005)
        variance = means.sum()  # each deviation squared, times the factor squared
        weights = zip((EXTREME_WEIGHT, LEVEL_WEIGHT), others, strict=True)
        scaled = [(weight * variance / len(part)).sqrt() / part.clamp(min=1e-3) for weight, part in weights]
        return torch.cat([means.rsqrt(), *scaled])

    def _values(self, sequences: Ragged, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        fields, lengths = self.batch(sequences, rows)
        return self.values(fields), lengths

    def values(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return all channels (B, D, T)."""
        return torch.cat([fields[name] for name in self.names], dim=-1).transpose(1, 2)

    def choose_thresholds(self, sequences: Ragged, rows: np.ndarray, generator: np.random.Generator) -> None:
        """Set the kernels' channels and biases and the levels' thresholds by values of random rows."""
        rows = generator.permutation(rows)
        tokens = SAMPLED_VALUES // self._buffer("slopes").shape[0]
        rows = rows[: max(1, int(np.searchsorted(np.cumsum(sequences.lengths[rows]), tokens)))]
        rows = rows[np.argsort(sequences.lengths[rows], kind="stable")]
        lengths = sequences.lengths[rows]
        views = [make_views(*self._values(sequences, rows[part])) for part in batches(lengths)]
        samples = np.concatenate([view.stacked.permute(0, 3, 1, 2)[view.valid[:, 0]].numpy() for view in views])
        used = np.flatnonzero((samples[:, 0] != 0).any(0))  # channels that are not constant in every row
        for index, (dilation, count) in enumerate(zip(self.dilations, self.biases, strict=True)):
            channels = choose_channels(used, samples.shape[2], generator)
            if self.selects:
                self._buffer(f"channels_{index}").copy_(torch.from_numpy(channels))
            windows = [
                sample_windows(samples[:, :, channels], lengths, dilation, edge, generator)
                for edge in (np.zeros_like(lengths), edges(lengths, dilation))
            ]
            taps = make_taps(windows, np.isin(channels, used), count, index, generator)
            self._buffer(f"taps_{index}").copy_(torch.from_numpy(taps))
        raw = np.concatenate(
            [
                torch.cat([view.raw, differences(view.raw)], 1).transpose(1, 2)[view.valid[:, 0]].numpy()
                for view in views
            ]
        )
        slopes = 1 / (SOFTNESS * np.maximum(raw.std(0, dtype=np.float64), 0.01))[:, None]
        at = np.quantile(raw, (np.arange(self.proportions) + 0.5) / self.proportions, axis=0).T
        self._buffer("slopes").copy_(torch.from_numpy(slopes).expand(-1, self.proportions))
        self._buffer("thresholds").copy_(torch.from_numpy(0.5 - slopes * at))


class ExportedKernels(nn.Module):
    """Form of `Kernels` that is exported."""

    def __init__(self, path: Kernels):
        super().__init__()
        self.path = path
        self.outputs = KernelOutputs(path.convolutions(), path.width)

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C). See `WidePath.forward`."""
        views = make_views(self.path.values(fields), lengths)
        return self.path.head(torch.cat([self.outputs(views, lengths), self.path.levels(views, lengths)], dim=1))


def mean_features(biases: Sequence[int]) -> int:
    """Return the number of means of kernels with so many biases per dilation."""
    return VIEWS * len(KERNELS) * sum(biases)


def extreme_features(dilations: Sequence[int]) -> int:
    """Return the number of extreme outputs of kernels."""
    return VIEWS * len(KERNELS) * len(dilations)


def level_features(width: int, proportions: int) -> int:
    """Return the number of features of the level block of `width` channels."""
    return 2 * width * proportions + 6 * width + 1


def budget(rows: int, tokens: int, others: int) -> int:
    """Return the number of biases of a kernel. `others`: number of features that do not depend on it.

    Few biases cost less accuracy than few rows, which the ridge takes if they are still too many.

    >>> budget(rows=1000, tokens=500_000, others=71), budget(rows=1_000_000, tokens=500_000_000, others=71)
    (60, 5)
    """
    per_bias = VIEWS * len(KERNELS)
    biases = min(MAX_BIASES, MAX_WORK // (tokens * per_bias), (feature_path.MAX_CELLS // rows - others) // per_bias)
    if rows > feature_path.MAX_SIDE:
        biases = min(biases, (feature_path.MAX_SIDE - others) // per_bias)
    return max(MIN_BIASES, biases)
