"""Slope of a series of readings with neighbours that are alike, such as the resident memory of a process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import t

BLOCKS = 20
MAX_CORRELATION = 0.95  # of neighbouring blocks, as estimated


class Slope(NamedTuple):
    """Slope per unit of the positions, and its 95 % interval [`low`, `high`]."""

    slope: float
    low: float
    high: float


def fit_slope(positions: np.ndarray, readings: np.ndarray) -> Slope:
    """Fit a line to readings (N,) at positions (N,), N at least 20.

    Generalised least squares on the means of 20 blocks, whose errors are taken as an autoregressive series of order 1.
    The correlation of neighbouring residuals underestimates that of the errors, because a line was fitted to them, and
    is corrected for it in the first order. Raises ValueError for fewer readings than blocks.

    >>> slope = fit_slope(np.arange(100.0), 5 + 2 * np.arange(100.0))
    >>> round(slope.slope, 6), round(slope.low, 6)
    (2.0, 2.0)
    """
    if len(readings) < BLOCKS:
        raise ValueError(f"{len(readings)} readings are fewer than {BLOCKS}")
    parts = np.array_split(np.arange(len(readings)), BLOCKS)
    position = np.array([positions[part].mean() for part in parts])
    reading = np.array([readings[part].mean() for part in parts])
    design = np.stack([np.ones(BLOCKS), position - position.mean()], axis=1)
    if np.ptp(position) == 0:
        raise ValueError("all positions are the same")
    inverse = _inverse_correlation(_correlation(design, reading))
    covariance = np.linalg.inv(design.T @ inverse @ design)
    estimate = covariance @ design.T @ inverse @ reading
    residuals = reading - design @ estimate
    variance = max(0.0, float(residuals @ inverse @ residuals)) / (BLOCKS - 2)
    margin = float(t.ppf(0.975, BLOCKS - 2) * np.sqrt(variance * covariance[1, 1]))
    return Slope(float(estimate[1]), float(estimate[1]) - margin, float(estimate[1]) + margin)


def _correlation(design: np.ndarray, reading: np.ndarray) -> float:
    """Return the correlation of neighbouring errors, at least 0."""
    residuals = reading - design @ np.linalg.lstsq(design, reading, rcond=None)[0]
    squares = float(residuals @ residuals)
    if squares <= 1e-18 * float(reading @ reading):  # a straight line
        return 0.0
    found = float(residuals[1:] @ residuals[:-1]) / squares
    return float(np.clip((BLOCKS * found + 2) / (BLOCKS - 4), 0, MAX_CORRELATION))


def _inverse_correlation(correlation: float) -> np.ndarray:
    """Return the inverse of the correlation matrix (20, 20) of an autoregressive series, up to a constant factor."""
    inner = np.full(BLOCKS, 1 + correlation**2)
    inner[[0, -1]] = 1
    beside = np.full(BLOCKS - 1, -correlation)
    return (np.diag(inner) + np.diag(beside, 1) + np.diag(beside, -1)) / (1 - correlation**2)
