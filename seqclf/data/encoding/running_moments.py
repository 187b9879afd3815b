"""What scalers learn in one pass over batches: moments, and samples for quantiles."""

from __future__ import annotations

import numpy as np

SAMPLE_ROWS = 100_000


class Moments:
    """Count, mean, deviation and extremes of each channel within each group, NaN left out.

    Arrays are (groups, channels). Batches are merged by Chan's update (count, mean and squared deviations), so large
    offsets lose nothing.
    """

    def __init__(self, groups: int, channels: int):
        self.count = np.zeros((groups, channels))
        self.mean = np.zeros((groups, channels))
        self.squares = np.zeros((groups, channels))
        self.lowest = np.full((groups, channels), np.inf)
        self.highest = np.full((groups, channels), -np.inf)

    @np.errstate(over="ignore", invalid="ignore")  # a deviation that is not finite says so itself
    def update(self, values: np.ndarray, groups: np.ndarray | None) -> None:
        """`values`: (S, channels); `groups`: (S,) or None where there is one."""
        count, total, squares = (np.empty_like(self.count) for _ in range(3))
        for channel in range(values.shape[1]):
            own = values[:, channel]
            sum_of_all = own.sum()
            whole = not np.isnan(sum_of_all)
            seen = slice(None) if whole else ~np.isnan(own)
            own = own[seen]
            if groups is None:
                count[:, channel] = len(own)
                total[:, channel] = sum_of_all if whole else own.sum()
                from_mean = own - own.mean() if len(own) else own
                squares[:, channel] = from_mean @ from_mean
                self._extend(channel, np.zeros(1, np.int64), own.min(initial=np.inf), own.max(initial=-np.inf))
                continue
            of = groups[seen]
            size = len(self.count)
            self._extend(channel, of, own, own)
            count[:, channel] = np.bincount(of, minlength=size)
            total[:, channel] = np.bincount(of, own, size)
            means = total[:, channel] / np.maximum(1, count[:, channel])
            squares[:, channel] = np.bincount(of, (own - means[of]) ** 2, size)
        merged = self.count + count
        shift = np.where(count > 0, total / np.maximum(1, count) - self.mean, 0.0)
        share = count / np.maximum(1, merged)
        self.squares += squares + shift**2 * self.count * share
        self.mean += shift * share
        self.count = merged

    def _extend(self, channel: int, of: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        np.minimum.at(self.lowest[:, channel], of, low)
        np.maximum.at(self.highest[:, channel], of, high)

    def deviation(self) -> np.ndarray:
        return np.sqrt(self.squares / np.maximum(1, self.count))


class Sample:
    """A uniform sample of at most `SAMPLE_ROWS` of all rows, the same for the same rows in the same batches.

    Each row draws a rank, and the lowest ranks are kept. They are sorted out only now and then.
    """

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.held: list[tuple[np.ndarray, np.ndarray]] = []
        self.count = 0
        self.highest = 1.0

    def update(self, rows: np.ndarray) -> None:
        """`rows`: (S,) or (S, D)."""
        ranks = self.generator.random(len(rows))
        if self.highest < 1.0:
            chosen = np.flatnonzero(ranks < self.highest)
            rows, ranks = rows[chosen], ranks[chosen]
        self.held.append((rows, ranks))
        self.count += len(ranks)
        if self.count > 2 * SAMPLE_ROWS:
            self._sort_out()

    def _sort_out(self) -> None:
        rows, ranks = (np.concatenate(parts) for parts in zip(*self.held, strict=True))
        if len(ranks) > SAMPLE_ROWS:
            kept = np.sort(np.argpartition(ranks, SAMPLE_ROWS)[:SAMPLE_ROWS])
            rows, ranks = rows[kept], ranks[kept]
            self.highest = float(ranks.max())
        self.held, self.count = [(rows, ranks)], len(ranks)

    @property
    def rows(self) -> np.ndarray | None:
        """The sampled rows in their order, or None if there was no batch."""
        if not self.held:
            return None
        self._sort_out()
        return self.held[0][0]
