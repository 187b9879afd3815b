"""Numbers of expected and observed events in bins of the predicted probability.

Reliability diagrams and tables show these numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.evaluation.intervals import CONFIDENCE, proportion_interval

# Bin edges are round numbers. They are dense near 0 and 1, because a rare class or a good model has most probabilities
# there.
EDGES = (0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.99, 0.997, 0.999, 1)
MIN_ROWS = 20  # minimum rows of a bin, unless there are fewer rows in total


class ReliabilityBin(NamedTuple):
    """One bin of a reliability diagram: the rows with a predicted probability from `low` up to `high`.

    `rows`: number of rows in the bin. `expected`: expected number of events, which is the sum of the predicted
    probabilities. `observed`: number of rows in which the event happened. `share_low`, `share_high`: ends of the
    Clopper-Pearson confidence interval for the fraction of rows with the event. With a confidence of 95 %, all
    intervals contain the true fractions of their bins.
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
        """Mean predicted probability of the rows in the bin."""
        return self.expected / self.rows

    @property
    def share(self) -> float:
        """Fraction of the rows in the bin in which the event happened."""
        return self.observed / self.rows

    @property
    def bias(self) -> int:
        """1 if the bin's probabilities are too high, -1 if they are too low, 0 if chance explains the difference."""
        return int(self.mean > self.share_high) - int(self.mean < self.share_low)


def reliability_bins(happened: np.ndarray, probability: np.ndarray) -> list[ReliabilityBin]:
    """Compare predicted probabilities with observed events in bins of at least `MIN_ROWS` rows.

    `happened`: (N,) bool, True for rows in which the event happened. `probability`: (N,) predicted probability of the
    event. Small bins are merged by their row counts alone, and not by their events. If the probabilities are right, the
    events in a merged bin are therefore independent. With a confidence of at least 95 % for all bins together
    (Bonferroni), the intervals contain the mean probabilities of their bins if the probabilities are right. Different
    probabilities within a bin only reduce the variance of the observed fraction (Hoeffding 1956).

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
    """Merge neighbouring bins until each bin has at least `MIN_ROWS` rows.

    Return the merged bins as index ranges [start, stop).
    """
    parts = [(index, index + 1, count) for index, count in enumerate(counts)]
    while len(parts) > 1:
        index = min(range(len(parts)), key=lambda position: parts[position][2])
        if parts[index][2] >= MIN_ROWS:
            break
        # Merge the bin with its smaller neighbour, so that bins stay narrow where there are many rows.
        neighbours = [position for position in (index - 1, index + 1) if 0 <= position < len(parts)]
        other = min(neighbours, key=lambda position: parts[position][2])
        first, last = sorted((index, other))
        parts[first : last + 1] = [(parts[first][0], parts[last][1], parts[first][2] + parts[last][2])]
    return [(start, stop) for start, stop, _ in parts]
