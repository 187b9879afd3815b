"""Statistics that scalers collect in one pass over record batches: moments, and a sample for quantiles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SAMPLE_ROWS = 100_000


class _Sums(NamedTuple):
    """Size, sum and sum of squared deviations of the values of one channel: (groups,) each, or one number."""

    size: np.ndarray | int
    total: np.ndarray | float
    squares: np.ndarray | float


class Moments:
    """Count, mean, deviation and extremes of each channel within each group, without NaN.

    All arrays are (groups, channels). Batches are merged by the update of Chan, Golub and LeVeque (1979) on count, mean
    and sum of squared deviations, so a large offset costs no precision.
    """

    def __init__(self, groups: int, channels: int):
        self.count = np.zeros((groups, channels))
        self.mean = np.zeros((groups, channels))
        self.squares = np.zeros((groups, channels))  # sums of squared deviations from the mean
        self.lowest = np.full((groups, channels), np.inf)
        self.highest = np.full((groups, channels), -np.inf)

    @np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a deviation that is not finite
    def update(self, values: np.ndarray, groups: np.ndarray | None) -> None:
        """Add S tokens. `values`: (S, channels). `groups`: (S,) group of each token, or None for a single group."""
        count, total, squares = (np.empty_like(self.count) for _ in range(3))
        for channel in range(values.shape[1]):
            column = values[:, channel]
            sums = self._ungrouped(column, channel) if groups is None else self._grouped(column, groups, channel)
            count[:, channel], total[:, channel], squares[:, channel] = sums
        self._merge(count, total, squares)

    def _ungrouped(self, values: np.ndarray, channel: int) -> _Sums:
        total = values.sum()
        if np.isnan(total):  # cheaper than a mask in the common case of no NaN
            values = values[~np.isnan(values)]
            total = values.sum()
        deviations = values - values.mean() if len(values) else values
        group = np.zeros(1, np.int64)
        self._extend_range(channel, group, values.min(initial=np.inf), values.max(initial=-np.inf))
        return _Sums(len(values), total, deviations @ deviations)

    def _grouped(self, values: np.ndarray, groups: np.ndarray, channel: int) -> _Sums:
        if np.isnan(values.sum()):
            present = ~np.isnan(values)
            values, groups = values[present], groups[present]
        size = len(self.count)
        count = np.bincount(groups, minlength=size)
        total = np.bincount(groups, values, size)
        means = total / np.maximum(1, count)
        self._extend_range(channel, groups, values, values)
        return _Sums(count, total, np.bincount(groups, (values - means[groups]) ** 2, size))

    def _merge(self, count: np.ndarray, total: np.ndarray, squares: np.ndarray) -> None:
        merged = self.count + count
        shift = np.where(count > 0, total / np.maximum(1, count) - self.mean, 0.0)
        share = count / np.maximum(1, merged)
        self.squares += squares + shift**2 * self.count * share
        self.mean += shift * share
        self.count = merged

    def _extend_range(
        self, channel: int, groups: np.ndarray, low: np.ndarray | float, high: np.ndarray | float
    ) -> None:
        np.minimum.at(self.lowest[:, channel], groups, low)
        np.maximum.at(self.highest[:, channel], groups, high)

    def deviation(self) -> np.ndarray:
        """Standard deviation, 0 for groups without values."""
        return np.sqrt(self.squares / np.maximum(1, self.count))


class Sample:
    """A uniform random sample of at most `most` of all rows, the same for the same rows in the same batches.

    Each row draws a random rank, and the rows of the lowest ranks are kept. Rows are dropped only when the buffer has
    grown to twice the sample, which makes the cost of sorting negligible.
    """

    def __init__(self, most: int = SAMPLE_ROWS) -> None:
        self.most = most
        self.generator = np.random.default_rng(0)
        self.buffer: list[tuple[np.ndarray, np.ndarray]] = []  # rows and their ranks
        self.count = 0
        self.highest_rank = 1.0

    def update(self, rows: np.ndarray) -> None:
        """Add rows, (S,) or (S, D)."""
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
        """The sampled rows in their order, or None if there was no batch."""
        if not self.buffer:
            return None
        self._drop_high_ranks()
        return self.buffer[0][0]
