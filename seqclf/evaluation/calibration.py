"""Calibration of probabilities: the expected calibration error, and temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.evaluation.json_result import JsonResult

BINS = 15


@dataclass(frozen=True, kw_only=True)
class CalibrationErrors(JsonResult):
    """Expected calibration error of one split before and after temperature scaling."""

    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Calibration(JsonResult):
    """Temperature fit on validation rows, whether decisions apply it, and the error (`ece`) of each split."""

    temperature: float
    applied: bool
    ece: dict[str, CalibrationErrors]


def softmax(logits: np.ndarray) -> np.ndarray:
    """(N, C) logits → (N, C) float64 probabilities."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    weights = np.exp(shifted)
    return weights / weights.sum(axis=1, keepdims=True)


def calibration_error(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width (Guo et al. 2017).

    The mean gap between the probability of the most probable class and the share of rows in which it is right.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bin_of_row = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    gaps = np.bincount(bin_of_row, weights=is_right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / max(1, len(labels)))


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

    return float(np.exp(minimize_scalar(negative_log_posterior, bounds=(-4.0, 4.0), method="bounded").x))
