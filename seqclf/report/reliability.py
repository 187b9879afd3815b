"""Expected and observed counts by predicted probability, for reliability diagrams and their tables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.evaluation.intervals import CONFIDENCE, proportion_interval

# Round numbers, close together near 0 and 1: the probabilities of a rare class, and of a good model, lie there.
EDGES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99, 0.997, 0.999, 1)
MIN_ROWS = 20  # in a bin, unless there are fewer rows in total


class ReliabilityBin(NamedTuple):
    """Rows with a probability from `low` up to `high`.

    `expected`: the sum of their probabilities. `observed`: rows where the event happened. `share_low`, `share_high`:
    the confidence interval of the share of such rows (Clopper and Pearson), which holds with a confidence of 95 % for
    all bins together.
    """

    low: float
    high: float
    rows: int
    expected: float
    observed: int
    share_low: float
    share_high: float

    @property
    def mean(self) -> float:
        """Mean probability."""
        return self.expected / self.rows

    @property
    def share(self) -> float:
        """Share of the rows where the event happened."""
        return self.observed / self.rows

    @property
    def bias(self) -> int:
        """1 if the probabilities are too high, -1 if they are too low, 0 if chance explains the difference."""
        return int(self.mean > self.share_high) - int(self.mean < self.share_low)


def reliability_bins(happened: np.ndarray, probability: np.ndarray) -> list[ReliabilityBin]:
    """Compare probabilities with what happened, in bins of at least `MIN_ROWS` rows.

    `happened`: (N,) bool. `probability`: (N,). Bins are joined by their number of rows alone. If the probabilities are
    right, the share of a bin is therefore that of independent rows, and all intervals contain the mean probability of
    their bin in 95 % of the cases or more (Bonferroni): unequal probabilities only make the share vary less (Hoeffding
    1956).

    >>> bins = reliability_bins(np.repeat([False, True], [95, 5]), np.repeat([0.02, 0.4], [80, 20]))
    >>> [(part.low, part.high, part.rows, round(part.expected, 1), part.observed, part.bias) for part in bins]
    [(0, 0.03, 80, 1.6, 0, 0), (0.03, 1, 20, 8.0, 5, 0)]
    """
    counts = np.histogram(probability, EDGES)[0]
    parts, bins = _joined(counts.tolist()), []
    for start, stop in parts:
        low, high = EDGES[start], EDGES[stop]
        inside = (probability >= low) & ((probability < high) if stop < len(counts) else True)
        rows, observed = int(inside.sum()), int(happened[inside].sum())
        limits = proportion_interval(observed, rows, 1 - (1 - CONFIDENCE) / len(parts))
        if limits is not None:
            bins.append(ReliabilityBin(low, high, rows, float(probability[inside].sum()), observed, *limits))
    return bins


def _joined(counts: list[int]) -> list[tuple[int, int]]:
    """Ranges of bins [start, stop), joined until each holds `MIN_ROWS` rows, as far as there are rows."""
    parts = [(index, index + 1, count) for index, count in enumerate(counts)]
    while len(parts) > 1:
        index = min(range(len(parts)), key=lambda position: parts[position][2])
        if parts[index][2] >= MIN_ROWS:
            break
        # With the smaller neighbour, so that bins stay narrow where rows are many.
        neighbours = [position for position in (index - 1, index + 1) if 0 <= position < len(parts)]
        other = min(neighbours, key=lambda position: parts[position][2])
        first, last = sorted((index, other))
        parts[first : last + 1] = [(parts[first][0], parts[last][1], parts[first][2] + parts[last][2])]
    return [(start, stop) for start, stop, _ in parts]
