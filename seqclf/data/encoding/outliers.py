"""Outliers that flatten a channel: fill values such as 1e38, and broken readings."""

from __future__ import annotations

import numpy as np

FILL_VALUE = 1e20  # fill values (1e20, 9.97e36, 3.4e38) reach it; measurements in common units do not
SUSPICIOUS = 1e9  # a few values from here on may be broken readings
MAX_SUSPICIOUS_COUNT, MAX_SUSPICIOUS_SHARE = 3, 0.01
JUMP = 1e6  # ratio from the largest usual magnitude to the smallest extreme one; heavy tails leave no such gap
PRECISION = float(np.finfo(np.float32).eps)  # of the model's input
ROUNDING = 8 * np.finfo(np.float64).eps


def usual_range(values: np.ndarray, lowest: float, highest: float) -> tuple[float, float] | None:
    """Range of the values that are not extreme, or None if no value is extreme.

    Values are extreme only if they raise the deviation so much that the others would differ by less than the precision
    of float32 once scaled. That alone is not enough, as noise at rest under rare events looks the same. So extreme
    values must also lie beyond a jump in magnitude, and be at least `FILL_VALUE`, or be few, at least `SUSPICIOUS` and
    far beyond the tail of the others.

    `values`: (n,) a sample without NaN. `lowest`, `highest`: extremes of all values, sampled or not.

    >>> usual_range(np.array([1.0, 2.0, 3.0, 4.0, 1e38]), 1.0, 1e38)
    (1.0, 4.0)
    >>> usual_range(np.array([1e-17, -2e-17, 1e-17, 1e-17, 50.0]), -2e-17, 50.0) is None
    True
    """
    unsampled = [value for value in (lowest, highest) if not len(values) or not values.min() <= value <= values.max()]
    values = np.append(values, unsampled)
    magnitudes = np.sort(np.abs(values))
    with np.errstate(over="ignore"):
        jumps = (magnitudes[1:] >= SUSPICIOUS) & (magnitudes[1:] > JUMP * magnitudes[:-1])
    for first_extreme in (np.flatnonzero(jumps) + 1).tolist():
        extreme_count = len(values) - first_extreme
        most = min(MAX_SUSPICIOUS_COUNT, MAX_SUSPICIOUS_SHARE * len(values))
        is_fill = magnitudes[first_extreme] >= FILL_VALUE
        if not is_fill and (extreme_count > most or not _stands_out(magnitudes, first_extreme)):
            continue
        usual = values[np.abs(values) < magnitudes[first_extreme]]
        mean, deviation = mean_and_deviation(usual)
        if ROUNDING * abs(mean) < deviation < PRECISION * mean_and_deviation(values)[1]:
            return float(usual.min()), float(usual.max())
    return None


def _stands_out(magnitudes: np.ndarray, first_extreme: int) -> bool:
    """Return True if a jump covers three times the orders of magnitude of the upper tenth below it.

    Magnitudes of many decades have such tails: of log-normal ones with a deviation of 8, the largest of 300 is a
    million times the second one in one sample of 2,000.
    """
    usual = magnitudes[:first_extreme]
    usual = usual[usual > 0]
    if not len(usual):
        return True
    tail = usual[-1] / np.quantile(usual, 0.9)
    return bool(magnitudes[first_extreme] / usual[-1] > tail**3)


def may_have_outliers(mean: np.ndarray, deviation: np.ndarray, lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """Mask of the channels for which `usual_range` may find a range, by statistics of all values.

    The arguments are arrays of one shape, and so is the mask. The test is cheap: a second pass over the data is needed
    only where it is true. By Chebyshev's inequality at most `MAX_SUSPICIOUS_SHARE` of the values lie nine or more
    deviations from the mean.
    """
    magnitude = np.maximum(np.abs(lowest), np.abs(highest))
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.maximum(highest - mean, mean - lowest) > 9 * deviation
    return (highest > lowest) & ((magnitude >= FILL_VALUE) | ((magnitude >= SUSPICIOUS) & far))


def mean_and_deviation(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of (n,) values of any magnitude."""
    # Squares of values beyond 1e154 overflow float64, so values are divided by the largest one first.
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    return float((values / scale).mean() * scale), float((values / scale).std() * scale)
