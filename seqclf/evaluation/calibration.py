"""Calibration of probabilities: the expected calibration error, and temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.system.json_result import JsonResult

CHANCE_DRAWS = 200  # of the labels of a perfectly calibrated model
MAX_NUMBERS = 4_000_000  # random numbers for these draws, which bounds their time
BINS = 15  # as in Guo et al. 2017, so that values compare with published ones


@dataclass(frozen=True, kw_only=True)
class CalibrationErrors(JsonResult):
    """Expected calibration error of one split before and after temperature scaling.

    `before_by_chance`, `after_by_chance`: the error that these probabilities would show on as many rows if they were
    right. None in files of earlier versions.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"before_by_chance", "after_by_chance"})

    before: float
    after: float
    before_by_chance: float | None = None
    after_by_chance: float | None = None


@dataclass(frozen=True, kw_only=True)
class Calibration(JsonResult):
    """Temperature fit on validation rows, whether decisions apply it, and the error (`ece`) of each split."""

    temperature: float
    applied: bool
    ece: dict[str, CalibrationErrors]


def softmax(logits: np.ndarray) -> np.ndarray:
    """(N, C) logits → (N, C) float64 probabilities."""
    # The largest exponent is 0, so exp cannot overflow.
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width (Guo et al. 2017).

    The mean gap between the probability of the most probable class and the share of rows in which it is right.
    `labels`: (N,) class numbers. `probabilities`: (N, C).

    >>> labels = np.array([0, 0, 1, 1])
    >>> probabilities = np.array([[0.8, 0.2]] * 4)  # right in half of the rows, at a confidence of 0.8
    >>> round(calibration_error(labels, probabilities), 3)
    0.3
    """
    confidence = probabilities.max(axis=1)
    return _mean_gap(probabilities.argmax(axis=1) == labels, confidence, _bins(confidence))


def calibration_error_by_chance(probabilities: np.ndarray, seed: int = 0) -> float:
    """Mean calibration error of labels that are drawn with the `probabilities` (N, C), which are then right.

    With few rows, a perfectly calibrated model also shows an error.

    >>> rows = np.full((50, 2), 0.5)
    >>> round(calibration_error_by_chance(rows), 2), round(calibration_error_by_chance(np.repeat(rows, 100, axis=0)), 3)
    (0.06, 0.006)
    """
    generator = np.random.default_rng(seed)
    confidence = probabilities.max(axis=1)
    bin_of_row = _bins(confidence)
    draws = int(np.clip(MAX_NUMBERS // max(1, len(confidence)), 4, CHANCE_DRAWS))
    return float(
        np.mean(
            [_mean_gap(generator.random(len(confidence)) < confidence, confidence, bin_of_row) for _ in range(draws)]
        )
    )


def _bins(confidence: np.ndarray) -> np.ndarray:
    # Bins include their upper end, as in the paper, so that a confidence of 1 is in the last one.
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _mean_gap(is_right: np.ndarray, confidence: np.ndarray, bin_of_row: np.ndarray) -> float:
    # Rows times gap of each bin. Dividing their sum by all rows weights bins by size, and no bin is divided by zero.
    gaps = np.bincount(bin_of_row, weights=is_right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, len(confidence)))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Temperature that maximises the likelihood of the labels when logits are divided by it (Guo et al. 2017).

    A log-normal prior of deviation 1 around 1 keeps it finite: without one, a split without errors would make the
    model certain of everything. A handful of rows outweighs the prior.
    """
    from scipy.optimize import minimize_scalar

    scaled = logits.astype(np.float64)
    rows = np.arange(len(labels))

    def negative_log_posterior(log_temperature: float) -> float:
        divided = scaled * np.exp(-log_temperature)
        top = divided.max(axis=1)
        log_sum = top + np.log(np.exp(divided - top[:, None]).sum(axis=1))
        return float((log_sum - divided[rows, labels]).sum() + log_temperature**2 / 2)

    # The logarithm keeps the temperature positive, and makes halving and doubling equally likely a priori.
    return float(np.exp(minimize_scalar(negative_log_posterior, bounds=(-4.0, 4.0), method="bounded").x))
