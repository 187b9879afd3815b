"""Values so large that they would flatten the channel they are in: sentinels and broken readings."""

from __future__ import annotations

import numpy as np

ABSURD = 1e20  # fill values (1e20, 9.97e36, 3.4e38) reach it; measurements in common units do not
SUSPECT = 1e9  # where a handful of values may be slips
HANDFUL, FEW = 3, 0.01  # values, share of the values
JUMP = 1e6  # in magnitude, from the largest usual value to the smallest extreme one; heavy tails leave no such gap
PRECISION = float(np.finfo(np.float32).eps)  # of what the model gets
ROUNDING = 8 * np.finfo(np.float64).eps


def usual_range(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float] | None:
    """Range of the values that are not extreme, or None where there are no extreme values.

    Values are extreme only if the deviation of all values is so large that the others would differ by less than the
    precision of float32 once scaled. That alone is not enough: noise at rest under rare events looks the same. So
    extreme values must also lie beyond a jump in magnitude, and be at least `ABSURD`, or a handful from `SUSPECT` on.

    `values`: (n,) a sample without NaN; `lowest`, `highest`: of all values.

    >>> usual_range(np.array([1.0, 2.0, 3.0, 4.0, 1e38]), 1.0, 1e38)
    (1.0, 4.0)
    >>> usual_range(np.array([1e-17, -2e-17, 1e-17, 1e-17, 50.0]), -2e-17, 50.0) is None
    True
    """
    unsampled = [value for value in (lowest, highest) if not len(values) or not values.min() <= value <= values.max()]
    values = np.append(values, unsampled)
    magnitude = np.sort(np.abs(values))
    with np.errstate(over="ignore"):
        jumps = (magnitude[1:] >= SUSPECT) & (magnitude[1:] > JUMP * magnitude[:-1])
    for first in (np.flatnonzero(jumps) + 1).tolist():
        beyond = len(values) - first
        if magnitude[first] < ABSURD and beyond > min(HANDFUL, FEW * len(values)):
            continue
        usual = values[np.abs(values) < magnitude[first]]
        mean, deviation = mean_and_deviation(usual)
        if ROUNDING * abs(mean) < deviation < PRECISION * mean_and_deviation(values)[1]:
            return float(usual.min()), float(usual.max())
    return None


def suspected(mean: np.ndarray, deviation: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Where `usual_range` may give a range, by statistics of all values (arrays of one shape).

    At most `FEW` values from `SUSPECT` on lie at least nine deviations from the mean.
    """
    magnitude = np.maximum(np.abs(lowest), np.abs(highest))
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.maximum(highest - mean, mean - lowest) > 9 * deviation
    return (highest > lowest) & ((magnitude >= ABSURD) | ((magnitude >= SUSPECT) & far))


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Of (n,) values of any magnitude: those whose squares leave the range of float64 are scaled first."""
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    return float((values / scale).mean() * scale), float((values / scale).std() * scale)
