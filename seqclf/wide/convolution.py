"""Convolutions of the wide path: the 84 kernels of MiniRocket, dilated, over random channels, with a soft bias."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqclf.models.heads.views import VIEWS

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
FAST_ELEMENTS = 64  # elements of the axes after one that is reduced, from which on PyTorch is fast
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
    """Return a mask (..., O) of the kernels that skip the ends of a row."""
    return taps[..., -2] < 0


def chunk(values: Tensor) -> int:
    """Return the number of tokens to convolve at a time."""
    return CHUNK_CPU if values.device.type == "cpu" else CHUNK


class Group(NamedTuple):
    """Kernels of one dilation as `multiply` takes them.

    `channels`: indices (D,) of the channels that the kernels read, None for all. `kernels`: (3, 84, 9 D + 2), the last
    two columns for padding and for the ends of a row. Each second kernel is negated, so that its largest output is
    minus its smallest one. `biases`: (3, 84, K). `signs`: (84, 1), -1 for a negated kernel. `skips`: (84, 1), True for
    a kernel that skips the ends of a row.
    """

    dilation: int
    channels: Tensor | None
    kernels: Tensor
    biases: Tensor
    signs: Tensor
    skips: Tensor

    def extremes(self, largest: Tensor) -> Tensor:
        """Return the extreme outputs (3, 84, B) with the first bias, from the largest outputs that `multiply` finds."""
        first = torch.where(self.signs < 0, self.biases[..., :1] - 1, self.biases[..., :1])
        return largest + first

    def means(self, sums: Tensor, counts: Tensor) -> Tensor:
        """Return the means (3, 84, K, B) of clipped outputs from their sums over as many positions (84, 1, B)."""
        means = sums / counts
        return torch.where(self.signs[..., None] < 0, 1 - means, means)


def make_group(dilation: int, channels: Tensor | None, taps: Tensor) -> Group:
    """Return the kernels of `taps` (3, 84 K, 9 D + 3)."""
    count = taps.shape[1] // len(KERNELS)
    sign = signs(len(KERNELS)).to(taps.device)[:, None]
    kernels, biases = taps[:, ::count], taps[..., -1].unflatten(1, (-1, count))
    # The clipped sum of an output and a bias is 1 minus the clipped sum of the negated output and 1 - bias.
    return Group(
        dilation,
        channels,
        torch.cat([kernels[..., :-3] * sign, kernels[..., -3:-1]], dim=2),
        torch.where(sign < 0, 1 - biases, biases),
        sign,
        skips_edges(kernels[0])[:, None],
    )


def time_major(values: Tensor, longest: int) -> Tensor:
    """Return values (B, ..., T) as (..., T + 2 R, B) with R zeros at each end. R: reach of the longest dilation."""
    return functional.pad(values.movedim(0, -1), (0, 0, reach(longest), reach(longest)))


def multiply(padded: Tensor, flags: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """Return what the kernels of a group find in the positions that they count.

    The first tensor is (3, 84, K, B) float64, the sum of the outputs clipped to [0, 1] with each of K biases. The
    second is (3, 84, B) float32, the largest output of each kernel, neither with a bias nor clipped.

    `padded`: (3, D, T + 2 R, B), see `time_major`. `flags`: (2, T, B), 1 at padding, and 1 at padding and at the ends
    of a row. The rows are the last axis, so that a shift in time moves long parts of the memory. With few channels, one
    product of matrices is five times as fast as conv1d.
    """
    time, rows = flags.shape[-2:]
    side = reach(group.dilation)
    padded = padded.narrow(2, (padded.shape[2] - time) // 2 - side, time + 2 * side)
    if group.channels is not None:
        padded = padded.index_select(1, group.channels)
    span = max(1, chunk(padded) // rows)
    sums = torch.zeros(*group.biases.shape, rows, dtype=torch.float64, device=padded.device)
    largest = torch.full((VIEWS, len(KERNELS), rows), -NEVER, device=padded.device)
    for start in range(0, time, span):  # parts of a long row
        stop = min(start + span, time)
        shifted = [padded[:, :, at + start : at + stop] for at in range(0, 2 * side + 1, group.dilation)]
        windows = torch.cat([*shifted, flags[:, start:stop].expand(VIEWS, -1, -1, -1)], dim=1).flatten(2)
        outputs = torch.bmm(group.kernels, windows)
        largest = torch.maximum(largest, _largest(outputs.unflatten(2, (-1, rows))))
        # All biases of a kernel share one convolution.
        soft = (outputs[:, :, None] + group.biases[..., None]).clamp_(0, 1)
        sums += soft.unflatten(3, (-1, rows)).sum(3)
    return sums, largest


def _largest(values: Tensor) -> Tensor:
    """(3, O, B) maximum of `values` (3, O, T, B) over T."""
    time, rows = values.shape[2:]
    # Reduced in blocks, 20 times as fast.
    block = 1 if rows == 1 else min(time, -(-FAST_ELEMENTS // rows))
    blocks = values[:, :, : time - time % block].unflatten(2, (-1, block)).flatten(3)
    most = blocks.amax(2).unflatten(2, (block, rows)).amax(2)
    return torch.maximum(most, values[:, :, time - block :].amax(2)) if time % block else most


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
