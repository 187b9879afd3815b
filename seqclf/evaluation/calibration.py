"""Calibration of probabilities: the expected calibration error, and temperature scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.design_effect import or_ones
from seqclf.system.json_result import JsonResult

CHANCE_DRAWS = 200  # maximum number of times that random labels are drawn
MAX_NUMBERS = 4_000_000  # maximum count of random numbers in all draws together, which limits the run time
BINS = 15  # number of bins in Guo et al. 2017, so that errors can be compared with published errors


@dataclass(frozen=True, kw_only=True)
class Calibration(JsonResult):
    """Temperature that was fitted on validation rows. `applied`: True if decisions divide the logits by it.

    `ece`: dict split → expected calibration errors `before` and `after` temperature scaling, and `before_by_chance` and
    `after_by_chance`: mean errors of perfectly calibrated probabilities on as many rows.
    """

    temperature: float
    applied: bool
    ece: dict[str, dict[str, float]]


def calibration_of(
    scored: Mapping[str, tuple[np.ndarray, np.ndarray]], temperature: float, applied: bool
) -> Calibration:
    """Return the calibration errors of each split. `scored`: dict split → logits (N, C) and labels (N,)."""
    errors = {}
    for split, (logits, labels) in scored.items():
        before, after = (softmax(logits / scale) for scale in (1.0, temperature))
        errors[split] = {
            "before": calibration_error(labels, before),
            "after": calibration_error(labels, after),
            "before_by_chance": calibration_error_by_chance(before),
            "after_by_chance": calibration_error_by_chance(after),
        }
    return Calibration(temperature=temperature, applied=applied, ece=errors)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the softmax probabilities (N, C) of logits (N, C) in float64."""
    # The largest exponent is 0, so exp cannot overflow.
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)


def calibration_error(labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the expected calibration error over 15 bins of equal width (Guo et al. 2017).

    It is the mean gap between the probability of the most probable class and the fraction of rows in which it is the
    label. `labels`: (N,). `probabilities`: (N, C). `weights`: (N,) of the rows, None for equal ones.

    >>> labels = np.array([0, 0, 1, 1])
    >>> probabilities = np.array([[0.8, 0.2]] * 4)  # right in half of the rows, at a confidence of 0.8
    >>> round(calibration_error(labels, probabilities), 3)
    0.3
    """
    confidence = probabilities.max(axis=1)
    return _mean_gap(probabilities.argmax(axis=1) == labels, confidence, _bins(confidence), weights)


def calibration_error_by_chance(probabilities: np.ndarray, seed: int = 0) -> float:
    """Return the mean calibration error of labels that are drawn at random from `probabilities` (N, C).

    They are perfectly calibrated, but with few rows the error is still above 0.

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
    # Each bin includes its upper end, as in the paper, so a confidence of 1 falls into the last bin.
    return np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)


def _mean_gap(
    is_right: np.ndarray, confidence: np.ndarray, bin_of_row: np.ndarray, weights: np.ndarray | None = None
) -> float:
    # Each entry of `gaps` is the sum of (correct - confidence) over the rows of a bin. Dividing by the number of all
    # rows weights each bin by its size, and avoids a division by zero for empty bins.
    weights = or_ones(weights, len(confidence))
    gaps = np.bincount(bin_of_row, weights=(is_right - confidence) * weights, minlength=BINS)
    return float(np.abs(gaps).sum() / (weights.sum() or 1))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature, which divides logits, that maximises the likelihood of the labels (Guo et al. 2017).

    Its logarithm has a standard normal prior, which a few rows outweigh. Without it, a split without errors would give
    probabilities of 0 and 1.
    """
    from scipy.optimize import minimize_scalar

    scaled = logits.astype(np.float64)
    rows = np.arange(len(labels))

    def negative_log_posterior(log_temperature: float) -> float:
        divided = scaled * np.exp(-log_temperature)
        top = divided.max(axis=1)
        log_sum = top + np.log(np.exp(divided - top[:, None]).sum(axis=1))
        return float((log_sum - divided[rows, labels]).sum() + log_temperature**2 / 2)

    # The search over the logarithm keeps the temperature positive. Under the prior, a temperature and its inverse are
    # equally likely.
    return float(np.exp(minimize_scalar(negative_log_posterior, bounds=(-4.0, 4.0), method="bounded").x))
