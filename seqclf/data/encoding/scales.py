"""Fit the scales of number channels (means and deviations, or medians and quartiles), and their spread in sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqclf.errors import InputError
from seqclf.system.state_validation import require

ROUNDING = 8 * np.finfo(np.float64).eps
SAMPLE_ROWS = 100_000
FEW_ROWS = 10_000  # enough to estimate quartiles that are only compared with the range of a channel
IQR_PER_DEVIATION = 1.349  # distance between the quartiles of a normal distribution with standard deviation 1
MAX_DEVIATIONS = 1e4  # a value farther from the median than this number of robust standard deviations is reported
WITHIN_ROUNDING = 1e-7  # precision of float32, the type of the model's inputs
MIN_WITHIN = 0.01  # smaller differences within a sequence are lost in the weights of a network, with and without noise


class Moments:
    """Count, mean, standard deviation, minimum and maximum of each channel, (channels,), without missing values (NaN).

    Batches are merged by the formula of Chan, Golub and LeVeque (1979), so a large offset costs no precision.
    """

    def __init__(self, channels: int):
        self.count = np.zeros(channels)
        self.mean = np.zeros(channels)
        self.squares = np.zeros(channels)  # sums of squared deviations from the mean
        self.lowest = np.full(channels, np.inf)
        self.highest = np.full(channels, -np.inf)

    def update(self, values: np.ndarray) -> None:
        """Add the (S, channels) values of S tokens."""
        count, total, squares = (np.empty_like(self.count) for _ in range(3))
        for channel in range(values.shape[1]):
            column = values[:, channel]
            total[channel] = column.sum()
            if np.isnan(total[channel]):  # a sum is computed faster than a mask, and NaN is rare
                column = column[~np.isnan(column)]
                total[channel] = column.sum()
            count[channel] = len(column)
            deviations = column - column.mean() if len(column) else column
            squares[channel] = deviations @ deviations
            self.lowest[channel] = min(self.lowest[channel], column.min(initial=np.inf))
            self.highest[channel] = max(self.highest[channel], column.max(initial=-np.inf))
        merged = self.count + count
        shift = np.where(count > 0, total / np.maximum(1, count) - self.mean, 0.0)
        share = count / np.maximum(1, merged)
        self.squares += squares + shift**2 * self.count * share
        self.mean += shift * share
        self.count = merged

    def deviation(self) -> np.ndarray:
        """Return the standard deviations. A channel without values has a standard deviation of 0."""
        return np.sqrt(self.squares / np.maximum(1, self.count))


class Sample:
    """A uniform random sample of at most `most` rows from a stream of batches.

    The same stream of batches always gives the same sample. Each row gets a random rank, and the rows with the lowest
    ranks are kept. Sorting costs little: rows with high ranks are dropped when the buffer is twice the sample.
    """

    def __init__(self, most: int = SAMPLE_ROWS) -> None:
        self.most = most
        self.generator = np.random.default_rng(0)
        self.buffer: list[tuple[np.ndarray, np.ndarray]] = []  # pairs (rows, ranks of the rows)
        self.count = 0
        self.highest_rank = 1.0

    def update(self, rows: np.ndarray) -> None:
        """Add a batch of rows. The shape of `rows` is (S,) or (S, D)."""
        ranks = self.generator.random(len(rows))
        if self.highest_rank < 1.0:
            candidates = np.flatnonzero(ranks < self.highest_rank)
            rows, ranks = rows[candidates], ranks[candidates]
        self.buffer.append((rows, ranks))
        self.count += len(ranks)
        if self.count > 2 * self.most:
            self._drop_high_ranks()

    def _drop_high_ranks(self) -> None:
        rows, ranks = (np.concatenate(parts) for parts in zip(*self.buffer, strict=True))
        if len(ranks) > self.most:
            kept = np.sort(np.argpartition(ranks, self.most)[: self.most])
            rows, ranks = rows[kept], ranks[kept]
            self.highest_rank = float(ranks.max())
        self.buffer, self.count = [(rows, ranks)], len(ranks)

    @property
    def rows(self) -> np.ndarray | None:
        """Return the sampled rows in their original order, or None if there was no batch."""
        if not self.buffer:
            return None
        self._drop_high_ranks()
        return self.buffer[0][0]


@dataclass(frozen=True)
class Scales:
    """Mean and standard deviation of each channel, (1, channels). Scaled values are (value - mean) / deviation."""

    mean: np.ndarray
    deviation: np.ndarray


def stored_array(state: Mapping[str, Any], key: str, shape: Sequence[int], *, positive: bool = False) -> np.ndarray:
    """Return the list under `key` in a stored state as a float64 array. `positive`: True if all must be above 0.

    Raises InputError if it has another shape than `shape`, or if a number is not finite.
    """
    require(state, {key: list})
    try:
        array = np.array(state[key], np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.shape != tuple(shape) or not np.isfinite(array).all():
        raise InputError(key, f"must be {' lists of '.join(map(str, shape))} numbers")
    if positive and (array <= 0).any():  # divisors and arguments of a logarithm must be positive
        raise InputError(key, "must be numbers above 0")
    return array


def fit_scales(read: Iterable[np.ndarray], channels: int, *, robust: bool) -> tuple[Scales, np.ndarray]:
    """Fit the scales of all channels in one pass over (S, channels) batches, with a sample of the values in memory.

    Also return a (channels,) mask of channels with a value more than `MAX_DEVIATIONS` robust standard deviations from
    the median. `robust`: True for median and quartiles in place of mean and deviation. Constant channels get 1.

    >>> scales, is_far = fit_scales([np.array([[1.0], [np.nan], [3.0]])], 1, robust=False)
    >>> scales.mean.tolist(), scales.deviation.tolist()
    ([[2.0]], [[1.0]])
    """
    moments, sample = Moments(channels), Sample(SAMPLE_ROWS if robust else FEW_ROWS)
    for values in read:
        moments.update(values)
        sample.update(values)
    median, spread = _quartiles(sample, channels)
    mean, deviation = (median, spread) if robust else (moments.mean, moments.deviation())
    lowest, highest = moments.lowest, moments.highest
    # Constant values have a computed deviation that is a rounding error, proportional to the constant.
    varies = (highest > lowest) & (deviation > ROUNDING * abs(mean))
    # The sample of a rare flag or count is constant, so its own deviation is the measure.
    spread = np.where(spread > 0, spread, moments.deviation())
    is_far = np.maximum(highest - median, median - lowest) > MAX_DEVIATIONS * spread
    mean, deviation = np.where(highest == lowest, lowest, mean), np.where(varies, deviation, 1.0)
    return Scales(mean[None], deviation[None]), varies & is_far


def _quartiles(sample: Sample, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the (channels,) medians, and deviations by the quartiles, or the actual ones if these are equal."""
    median, spread = np.zeros(channels), np.zeros(channels)
    rows = np.empty((0, channels)) if sample.rows is None else sample.rows
    for channel in range(channels):
        values = rows[~np.isnan(rows[:, channel]), channel]
        if len(values):
            low, median[channel], high = np.quantile(values, (0.25, 0.5, 0.75))
            spread[channel] = (high - low) / IQR_PER_DEVIATION or values.std()
    return median, spread


def fit_within(read: Iterable[tuple[np.ndarray, np.ndarray]], channels: int) -> np.ndarray:
    """Return the (channels,) standard deviations of scaled values within sequences, from `MIN_WITHIN` to 1.

    The variance is pooled over all sequences, with n - 1 degrees of freedom for n values; values that do not depend on
    their sequence have about 1. A channel that is constant in all sequences gets 1: noise cannot drown its shape.

    `read`: pairs (values (S, channels) with NaN where missing, lengths (N,)), one for each record batch.

    >>> fit_within([(np.array([[-1.0], [-0.9], [1.0], [1.1]]), np.array([2, 2]))], 1).round(3).tolist()
    [0.071]
    """
    squares, degrees = np.zeros(channels), np.zeros(channels)
    for values, lengths in read:
        lengths = lengths[lengths > 0]  # reduceat cannot sum over an empty sequence
        if not len(lengths):
            continue
        starts = np.cumsum(lengths) - lengths
        seen = ~np.isnan(values)
        count = np.add.reduceat(seen, starts, axis=0, dtype=np.int64)
        centred = np.where(seen, values, 0.0)
        mean = np.add.reduceat(centred, starts, axis=0) / np.maximum(1, count)
        centred = np.where(seen, centred - np.repeat(mean, lengths, axis=0), 0.0)
        with np.errstate(over="ignore"):
            squares += np.square(centred).sum(axis=0)
        degrees += np.maximum(0, count - 1).sum(axis=0)
    within = np.sqrt(squares / np.maximum(1, degrees))
    # The mean of equal values has a rounding error.
    return np.where(within > WITHIN_ROUNDING, np.clip(within, MIN_WITHIN, 1.0), 1.0)
