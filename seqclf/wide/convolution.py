"""Convolutions of the wide path: the 84 kernels of MiniRocket, dilated, over random channels, with a soft bias."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqclf.wide.views import VIEWS

TAPS = 9
KERNELS = np.array(  # (84, 9): three taps of 2, six of -1, so that a constant gives 0
    [[2.0 if tap in chosen else -1.0 for tap in range(TAPS)] for chosen in itertools.combinations(range(TAPS), 3)]
)
MAX_DILATIONS = 32
MAX_CHANNELS = 6  # channels that the kernels of one dilation read
SOFTNESS = 0.1  # width of the ramp at a bias, in standard deviations of the convolution
NEVER = 1e9  # added below all biases at padding
MAX_DEVIATION = 50.0  # standard deviations from a bias up to which an extreme output counts
SAMPLED_POSITIONS = 1024  # positions that choose the biases of a dilation
# Tokens that are convolved at a time. On a CPU, few stay in its cache.
CHUNK_CPU, CHUNK = 1024, 65_536
Lengths = TypeVar("Lengths", np.ndarray, Tensor)


def choose_dilations(longest: int, biases: int, *, repeat: bool = False) -> tuple[list[int], list[int]]:
    """Return exponentially growing dilations, up to kernels as long as the longest row, and their biases per kernel.

    With `repeat`, a dilation may occur several times, so that its kernels can read different channels.

    >>> choose_dilations(longest=30, biases=5)
    ([1, 2, 3], [3, 1, 1])
    """
    exponents = np.linspace(0, np.log2(max(1, (longest - 1) / (TAPS - 1))), min(biases, MAX_DILATIONS))
    dilations = np.floor(2**exponents + 1e-9).astype(int)
    counts = np.ones_like(dilations)
    if not repeat:
        dilations, counts = np.unique(dilations, return_counts=True)
    counts = counts * biases // counts.sum()
    counts[: biases - counts.sum()] += 1
    return dilations.tolist(), counts.tolist()


def edges(lengths: Lengths, dilation: int) -> Lengths:
    """Return the number of positions at each end of rows at which a kernel reads beyond the row, or 0 in short rows.

    Kernels that skip the ends count at least half of the positions. Where fewer would be left, they count all.

    >>> edges(np.array([32, 33]), dilation=2)
    array([0, 8])
    """
    return inner_edges(lengths, reach(dilation))


def inner_edges(lengths: Lengths, reaches: Any) -> Lengths:
    """Return `edges` of kernels that read so many positions to each side."""
    return (lengths > 4 * reaches) * reaches


def reach(dilation: int) -> int:
    """Return the number of positions that a kernel reads to each side."""
    return TAPS // 2 * dilation


def skips_edges(taps: Tensor) -> Tensor:
    """Return a mask (3, O) of the kernels that skip the ends of a row."""
    return taps[..., -2] < 0


def chunk(values: Tensor) -> int:
    """Return the number of tokens to convolve at a time."""
    return CHUNK_CPU if values.device.type == "cpu" else CHUNK


def multiply(values: Tensor, flags: Tensor, taps: Tensor, dilation: int) -> tuple[Tensor, Tensor]:
    """Return what kernels of one dilation find in the positions that they count.

    The first tensor is (B, 3, O) float64, the sum of the outputs clipped to [0, 1]. The second is (B, 3, 84) float32,
    the largest output of each kernel with its first bias, not clipped, and minus the smallest one of each second kernel
    (see `signs`).

    `values`: (B, 3, D, T). `flags`: (B, 3, 2, T), 1 at padding, and 1 at padding and at the ends of a row. `taps`:
    (3, O, 9 D + 3). With few channels, one product of matrices is five times as fast as conv1d.
    """
    side = reach(dilation)
    rows, time = len(values), values.shape[-1]
    padded = functional.pad(values, (side, side)).permute(1, 2, 0, 3)
    flags = flags.permute(1, 2, 0, 3)
    # All biases of a kernel share one convolution.
    count = taps.shape[1] // len(KERNELS)
    kernels, biases = taps[:, ::count, :-1], taps[..., -1:].unflatten(1, (-1, count))
    span = max(1, chunk(values) // rows)
    sums = torch.zeros(VIEWS, taps.shape[1], rows, dtype=torch.float64, device=values.device)
    extremes = torch.full((VIEWS, len(KERNELS), rows), -NEVER, device=values.device)
    for start in range(0, time, span):  # parts of a long row
        stop = min(start + span, time)
        shifted = [padded[..., at + start : at + stop] for at in range(0, 2 * side + 1, dilation)]
        windows = torch.cat([*shifted, flags[..., start:stop]], dim=1).flatten(2)
        outputs = torch.bmm(kernels, windows)
        inverted, plain = outputs.unflatten(2, (rows, -1)).unflatten(1, (-1, 2)).unbind(2)
        # Each second kernel leaves out the same positions, at which `NEVER` has to be above all outputs here.
        excluded = (kernels[0, 0, -2:, None, None] * flags[0, :, :, start:stop]).sum(0)
        smallest = (inverted - 2 * excluded).amin(-1)
        extremes = torch.maximum(extremes, torch.stack([-smallest, plain.amax(-1)], dim=2).flatten(1, 2))
        soft = (outputs[:, :, None] + biases).clamp_(0, 1).flatten(1, 2)
        sums += soft.unflatten(2, (rows, -1)).sum(-1)
    extremes += signs(len(KERNELS)).to(values.device)[:, None] * biases[:, :, 0]
    return sums.permute(2, 0, 1), extremes.permute(2, 0, 1)


def signs(kernels: int) -> Tensor:
    """Return the sign (O,) float32 of the extreme output of so many kernels: 1 for the largest, -1 for the smallest.

    The kernels and their negatives find different events, and one of the two halves the features.
    """
    return torch.tensor([-1.0, 1.0]).repeat(kernels // 2)


def deviation(extremes: Tensor) -> Tensor:
    """Return extreme outputs of kernels as a feature, float64: the distance from the bias in standard deviations."""
    return (extremes * SOFTNESS).clamp(-MAX_DEVIATION, MAX_DEVIATION).double()


def choose_channels(used: np.ndarray, width: int, generator: np.random.Generator) -> np.ndarray:
    """Return the channels of the kernels of one dilation: at most MAX_CHANNELS, those of `used` first."""
    unused = np.setdiff1d(np.arange(width), used)
    return np.sort(np.concatenate([generator.permutation(used), unused])[:MAX_CHANNELS])


def sample_windows(
    tokens: np.ndarray, lengths: np.ndarray, dilation: int, skipped: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """(P, 9, 3, D) values under the taps of a kernel at random positions, 0 beyond the ends of a row.

    `tokens`: (S, 3, D) views of rows end to end. `skipped`: (N,) number of positions at each end of a row to skip.
    """
    ends = np.cumsum(lengths)
    counted = np.cumsum(lengths - 2 * skipped)
    picks = generator.integers(0, counted[-1], SAMPLED_POSITIONS)
    rows = np.searchsorted(counted, picks, side="right")
    positions = picks - counted[rows] + (ends - skipped)[rows]
    at = positions[:, None] + dilation * (np.arange(TAPS) - TAPS // 2)
    inside = (at >= (ends - lengths)[rows][:, None]) & (at < ends[rows][:, None])
    return np.where(inside[..., None, None], tokens[np.where(inside, at, 0)], 0)


def make_taps(
    windows: Sequence[np.ndarray], used: np.ndarray, count: int, index: int, generator: np.random.Generator
) -> np.ndarray:
    """Return taps (3, 84 `count`, 9 D + 3) of the kernels of one dilation, scaled to a ramp from 0 to 1 at their bias.

    Every second kernel skips the ends of a row, by turns at the next dilation.

    Args:
        windows: Samples of `sample_windows` of all positions, and of the positions of kernels that skip the ends.
        used: Mask (D,) of the channels to read. Each kernel reads a random subset of them.
        count: Number of biases of each kernel.
        index: Number of the dilation.
        generator: Source of the subsets and of the quantiles at which biases lie.
    """
    skips = (np.arange(len(KERNELS)) + index) % 2 == 1
    candidates = np.flatnonzero(used) if used.any() else np.arange(len(used))
    # A few channels are as likely as many, on a logarithmic scale.
    sizes = (2 ** generator.uniform(0, np.log2(len(candidates) + 1), (VIEWS, len(KERNELS)))).astype(int)
    ranks = generator.random((VIEWS, len(KERNELS), len(candidates))).argsort(-1)
    reads = np.zeros((VIEWS, len(KERNELS), len(used)))
    reads[..., candidates] = ranks < sizes[..., None]
    taps = KERNELS[:, :, None] * reads[:, :, None]  # (3, 84, 9, D)
    outputs = np.empty((VIEWS, len(KERNELS), SAMPLED_POSITIONS))
    for chosen, part in zip((~skips, skips), windows, strict=True):
        outputs[:, chosen] = np.einsum("ptvd,vktd->vkp", part, taps[:, chosen], optimize=True)
    slopes = 1 / (SOFTNESS * np.maximum(outputs.std(-1), 0.01))[..., None]
    # Quantiles of the golden ratio spread evenly, whatever their number.
    quantiles = (generator.random() + np.arange(VIEWS * len(KERNELS) * count) * (5**0.5 - 1) / 2) % 1
    picks = (quantiles * outputs.shape[-1]).astype(int).reshape(VIEWS, len(KERNELS), count)
    biases = np.take_along_axis(np.sort(outputs, -1), picks, -1)
    scaled = np.repeat(taps.reshape(VIEWS, len(KERNELS), 1, -1) * slopes[..., None], count, axis=2)
    at_padding, at_ends = (np.broadcast_to(-NEVER * which[:, None], biases.shape) for which in (~skips, skips))
    flags = np.stack([at_padding, at_ends, 0.5 - slopes * biases], -1)
    return np.concatenate([scaled, flags], -1).reshape(VIEWS, len(KERNELS) * count, -1)
