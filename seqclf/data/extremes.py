"""Values so far from all others that they would flatten the channel they stand in: sentinels and broken readings."""

from __future__ import annotations

import numpy as np

JUMP = 1e6  # of the distance from the median, from one value to the next; heavy tails stay far below it
FEWEST = 3  # values between which a jump can be judged


def usual_range(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float] | None:
    """The range of the values before a jump in their distance from the median, or None where there is no jump.

    `values`: (n,) a sample without NaN; `lowest`, `highest`: of all values. Fewer than half of them may be extreme.

    >>> usual_range(np.array([1.0, 2.0, 3.0, 4.0, 1e38]), 1.0, 1e38)
    (1.0, 5.0)
    """
    if len(values) <= FEWEST:
        return None
    middle = float(np.median(values))
    with np.errstate(over="ignore"):
        distance = np.sort(np.abs(np.append(values, [lowest, highest]) - middle))
    distance = distance[distance > 0]
    first = max(FEWEST, len(distance) // 2)
    jumps = np.flatnonzero(distance[first:] > JUMP * distance[first - 1 : -1])
    if not len(jumps):
        return None
    reach = float(distance[first - 1 + jumps[0]])
    return middle - reach, middle + reach


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Of (n,) values of any magnitude: those whose squares leave the range of float64 are scaled first."""
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    return float((values / scale).mean() * scale), float((values / scale).std() * scale)
