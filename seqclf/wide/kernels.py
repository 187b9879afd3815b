"""Wide path for numeric sequences: frozen random convolution kernels, a block of level statistics, and a ridge head.

Three views of the channels (the row z-scored, its first difference, its values) are convolved with the 84 kernels of
MiniRocket (Dempster et al. 2021) at exponentially growing dilations. A feature is the proportion of positions at which
a convolution exceeds a bias. The proportion is soft at the bias, because a hard one jumps with the rounding of sums,
and logits would depend on the other rows of the batch. Every second kernel skips the ends of a row, so that the
features also tell something about the place of a pattern in its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.collate import pad
from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.wide import convolution
from seqclf.wide.convolution import (
    KERNELS,
    MAX_CHANNELS,
    SOFTNESS,
    TAPS,
    choose_channels,
    choose_dilations,
    chunk,
    edges,
    make_taps,
    multiply,
    sample_windows,
    skips_edges,
)
from seqclf.wide.kernel_means import KernelMeans
from seqclf.wide.parallel_parts import map_parts
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.ridge import BLOCK, fit_ridge, rows_per_group
from seqclf.wide.views import VIEWS, Views, differences, level_statistics, make_views

MAX_BIASES = 60  # biases of a kernel in a view, over all dilations: 5,040 features
MIN_BIASES = 5
MAX_PROPORTIONS = 32  # thresholds of a channel in the level block
MAX_LEVELS = 1024  # thresholds of all channels
LEVEL_WEIGHT = 0.03  # variance of the level block, as a fraction of the kernels' variance
# Budget of a fit.
MAX_WORK = 100_000_000_000  # tokens times features
MAX_CELLS = 48_000_000  # rows times features, held as float32, and in a part of the fit as float64
MAX_SIDE = 4096  # rows and columns of the matrix that the ridge decomposes
SAMPLED_VALUES = 200_000  # values of the rows that choose biases


class Kernels(WidePath):
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
        super().__init__()
        widths = {field["name"]: field["width"] for field in fields if field["kind"] == "number"}
        self.names, width = list(widths), sum(widths.values())
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
        size = kernel_features(self.biases) + level_features(width, proportions)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("weight", torch.zeros(size, num_classes))
        self.register_buffer("bias", torch.zeros(num_classes))

    def settings(self) -> dict[str, Any]:
        """Return dilations, biases and proportions."""
        return {"dilations": self.dilations, "biases": self.biases, "proportions": self.proportions}

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C) float32. See `WidePath.forward`."""
        return self.head(self.features(fields, lengths))

    def head(self, features: Tensor) -> Tensor:
        """Return the logits (B, C) float32 of features (B, F) float64."""
        # The head sums thousands of products, and padding must not show in them, so it computes in double precision.
        centred = features - self._buffer("mean").double()
        return (centred @ self._buffer("weight").double() + self._buffer("bias").double()).float()

    def features(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float64: first the features of kernels, then the level block."""
        values = self.values(fields)
        rows = max(1, chunk(values) // values.shape[-1])
        parts = list(zip(values.split(rows), lengths.split(rows), strict=True))
        with torch.autocast(values.device.type, enabled=False):
            return torch.cat(map_parts(self._features, parts))

    def _features(self, values: Tensor, lengths: Tensor) -> Tensor:
        views = make_views(values, lengths)
        return torch.cat([self._kernel_means(views, lengths), self.levels(views, lengths)], dim=1)

    def _kernel_means(self, views: Views, lengths: Tensor) -> Tensor:
        """(B, outputs) float64 means of the soft comparison with each bias, over the positions that a kernel counts."""
        means = []
        positions = torch.arange(views.valid.shape[-1], device=lengths.device)
        for dilation, channels, taps in self.convolutions():
            edge = edges(lengths, dilation)[:, None]
            outer = (positions < edge) | (positions >= lengths[:, None] - edge)
            flags = torch.stack([~views.valid[:, 0], outer], dim=1).float()[:, None].expand(-1, VIEWS, -1, -1)
            values = views.stacked if channels is None else views.stacked.index_select(2, channels)
            counts = torch.where(skips_edges(taps), (lengths - 2 * edge[:, 0])[:, None, None], lengths[:, None, None])
            means.append(multiply(values, flags, taps, dilation) / counts.double())
        return torch.cat(means, dim=2).flatten(1)

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
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit kernels and head to the rows of `train`. Returns None without a number field.

        With many rows or long ones, there are fewer features, and the head is fitted to random rows. The same holds
        for rows in large groups. The logits of the other rows come from the fitted path, because they took no part in
        the fit of its head. They are NaN where other rows of their group took part.
        """
        width = sum(field["width"] for field in fields if field["kind"] == "number")
        if not width:
            return None
        generator = np.random.default_rng(seed)
        sequences, labels = train.sequences, train.labels
        proportions = max(1, min(MAX_PROPORTIONS, MAX_LEVELS // (2 * width)))
        others = level_features(width, proportions)
        biases, most_rows = budget(len(sequences), int(sequences.offsets[-1]), others)
        longest = int(sequences.lengths.max())
        dilations, counts = choose_dilations(longest, biases, repeat=width > MAX_CHANNELS)
        path = cls(fields, num_classes, dilations, counts, proportions).eval()
        group = np.unique(train.groups, return_inverse=True)[1] if train.groups is not None else None
        rows = _choose_rows(len(sequences), most_rows, group, len(path._buffer("mean")), generator)
        with torch.inference_mode():
            path._choose_thresholds(sequences, rows, generator)
            features = path._read(sequences, rows, path.features, len(path._buffer("mean")))
            head = fit_ridge(
                features, _scale(features, others), labels[rows], num_classes, None if group is None else group[rows]
            )
            for name in ("mean", "weight", "bias"):
                path._buffer(name).copy_(getattr(head, name))
            held_out = np.full((len(sequences), num_classes), np.nan)
            held_out[rows] = head.held_out
            rest = np.setdiff1d(np.arange(len(sequences)), rows)
            if group is not None:
                rest = rest[~np.isin(group[rest], group[rows])]
            if len(rest):
                held_out[rest] = path._read(sequences, rest, path.forward, num_classes).numpy()
        if len(rows) < len(labels):
            path.notes = [f"fitted to {len(rows):,} of {len(labels):,} training rows"]
        return FittedPath(path, held_out)

    def _read(self, sequences: Ragged, rows: np.ndarray, function: Any, width: int) -> Tensor:
        """(M, width) float32 results of `function` for some rows, in batches of rows of about the same length."""
        result = torch.empty(len(rows), width)
        lengths = sequences.lengths[rows]
        order = np.argsort(lengths, kind="stable")
        for part in _batches(lengths[order]):
            chosen = order[part]
            result[torch.from_numpy(chosen)] = function(*self._batch(sequences, rows[chosen])).float()
        return result

    def _values(self, sequences: Ragged, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        fields, lengths = self._batch(sequences, rows)
        return self.values(fields), lengths

    def values(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return all channels (B, D, T)."""
        return torch.cat([fields[name] for name in self.names], dim=-1).transpose(1, 2)

    def _batch(self, sequences: Ragged, rows: np.ndarray) -> tuple[dict[str, Tensor], Tensor]:
        numbers = Ragged(sequences.offsets, {name: sequences.fields[name] for name in self.names})
        fields, lengths = pad(numbers, rows)
        return {name: torch.from_numpy(values) for name, values in fields.items()}, torch.from_numpy(lengths)

    def _choose_thresholds(self, sequences: Ragged, rows: np.ndarray, generator: np.random.Generator) -> None:
        """Set the kernels' channels and biases and the levels' thresholds by values of random rows."""
        rows = generator.permutation(rows)
        tokens = SAMPLED_VALUES // self._buffer("slopes").shape[0]
        rows = rows[: max(1, int(np.searchsorted(np.cumsum(sequences.lengths[rows]), tokens)))]
        rows = rows[np.argsort(sequences.lengths[rows], kind="stable")]
        lengths = sequences.lengths[rows]
        views = [make_views(*self._values(sequences, rows[part])) for part in _batches(lengths)]
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
        self.means = KernelMeans(path.convolutions(), path.width)

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C). See `WidePath.forward`."""
        views = make_views(self.path.values(fields), lengths)
        return self.path.head(torch.cat([self.means(views, lengths), self.path.levels(views, lengths)], dim=1))


def kernel_features(biases: Sequence[int]) -> int:
    """Return the number of features of kernels with so many biases per dilation."""
    return VIEWS * len(KERNELS) * sum(biases)


def level_features(width: int, proportions: int) -> int:
    """Return the number of features of the level block of `width` channels."""
    return 2 * width * proportions + 6 * width + 1


def budget(rows: int, tokens: int, others: int) -> tuple[int, int]:
    """Return the number of biases of a kernel, and the largest number of rows that fit the head.

    `others`: number of features beside the kernels. Few biases cost less accuracy than few rows.

    >>> budget(rows=1000, tokens=500_000, others=71), budget(rows=1_000_000, tokens=500_000_000, others=71)
    ((60, 1000), (5, 36063))
    """
    per_bias = VIEWS * len(KERNELS)
    biases = min(MAX_BIASES, MAX_WORK // (tokens * per_bias), (MAX_CELLS // rows - others) // per_bias)
    if rows > MAX_SIDE:
        biases = min(biases, (MAX_SIDE - others) // per_bias)
    biases = max(MIN_BIASES, biases)
    features = biases * per_bias + others
    return biases, min(rows, MAX_CELLS // features, rows if features <= MAX_SIDE else MAX_SIDE)


def _batches(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield positions of rows of ascending `lengths` (N,), at most CHUNK_CPU padded tokens or one row at a time."""
    start = 0
    while start < len(lengths):
        stop = start + 1
        while stop < len(lengths) and lengths[stop] * (stop + 1 - start) <= convolution.CHUNK_CPU:
            stop += 1
        yield np.arange(start, stop)
        start = stop


def _choose_rows(
    count: int, most: int, group: np.ndarray | None, features: int, generator: np.random.Generator
) -> np.ndarray:
    """Return the ascending rows that fit the head: at most `most` random ones, a bounded number of each group."""
    order = generator.permutation(count)[:most]
    if group is not None:
        by_group = np.argsort(group[order], kind="stable")
        sizes = np.unique(group[order], return_counts=True)[1]
        places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # within the group
        order = order[by_group[places < rows_per_group(sizes, min(features, len(order)))]]
    return np.sort(order)


def _scale(features: Tensor, others: int) -> Tensor:
    """(F,) float64 factors of the kernels' features and of the last `others` features, those of the level block.

    Kernels with a small deviation count less than others, but not as much less as without factors. The block has a
    fixed fraction of the variance.
    """
    deviations = torch.cat([part.double().std(0, correction=0) for part in features.split(BLOCK, 1)])
    kernels, levels = deviations[:-others].clamp(min=0.005), deviations[-others:].clamp(min=1e-3)
    variance = kernels.sum()  # each deviation squared, times the factor squared
    return torch.cat([kernels.rsqrt(), (LEVEL_WEIGHT * variance / others).sqrt() / levels])
