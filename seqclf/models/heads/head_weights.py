"""Weights of the heads of a network, which validation rows choose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

MAX_WEIGHT = 5.0
MIN_SCALE = 1e-3
# Both constants were chosen on validation draws of 30 to 300 rows of twelve generated sets (docs/log.md).
TEMPER = 0.1  # factor of the summed log likelihoods that the first guess goes by
PRIOR = 2.0  # penalty of a squared distance from the first guess, in nats


def fit_head_weights(logits: np.ndarray, labels: np.ndarray, row_weights: np.ndarray | None = None) -> np.ndarray:
    """Return the weights (H,) of the `logits` (H, N, C) of H heads in their sum.

    The first guess weighs each head by its likelihood, at its best scale: heads that are far worse than another one get
    almost nothing, and heads that few rows cannot tell apart get equal parts. The weights then minimize the log loss of
    the sum plus a penalty of their distance from the first guess. `labels`: (N,) class codes. `row_weights`: (N,)
    weight of each row in the loss; None for equal weights.

    >>> rows = np.arange(200)
    >>> good = 2 * np.eye(2)[np.where(rows < 30, 1 - rows % 2, rows % 2)]  # right in 170 rows
    >>> noise = np.eye(2)[rows // 2 % 2]
    >>> fit_head_weights(np.stack([good, noise]), rows % 2).round(1).tolist()
    [0.9, 0.0]
    """
    exact = logits.astype(np.float64)
    row_weights = np.ones(len(labels)) if row_weights is None else row_weights
    scales, losses = zip(*(_scale(head, labels, row_weights) for head in exact), strict=True)
    guess = softmax(-TEMPER * np.array(losses)) * np.array(scales)

    def penalty(weights: np.ndarray) -> tuple[float, np.ndarray]:
        away = weights - guess
        return PRIOR * float(away @ away), 2 * PRIOR * away

    return _minimize(exact, labels, row_weights, guess, penalty)


def cross_fitted_sums(
    logits: np.ndarray, labels: np.ndarray, row_weights: np.ndarray, weights: np.ndarray, fifth: np.ndarray
) -> np.ndarray:
    """Return the sums (N, C) of the logits (H, N, C) of heads, by weights that were fitted without the row's fifth.

    The weights of a fifth are multiplied by one factor: their sums then have the mean square of the sums by the final
    `weights` (H,), in the rows that fitted both. `fifth`: (N,) number of each row's fifth.
    """
    centred = logits - logits.mean(axis=2, keepdims=True)  # a constant added to all classes changes no probability
    sums = np.empty(logits.shape[1:])
    for number in np.unique(fifth):
        rest = fifth != number
        own = fit_head_weights(logits[:, rest], labels[rest], row_weights[rest])
        size, own_size = (np.square(np.tensordot(part, centred[:, rest], 1)).sum() for part in (weights, own))
        factor = np.sqrt(size / own_size) if size > 0 and own_size > 0 else 1.0
        sums[~rest] = factor * np.tensordot(own, logits[:, ~rest], 1)
    return sums


def _scale(head: np.ndarray, labels: np.ndarray, row_weights: np.ndarray) -> tuple[float, float]:
    """Return the scale of the logits (N, C) of a head with the lowest loss, near 1 if rows are few, and the loss."""

    def penalty(scale: np.ndarray) -> tuple[float, np.ndarray]:
        distance = np.log(np.maximum(scale, MIN_SCALE))
        return float(distance @ distance), 2 * distance / np.maximum(scale, MIN_SCALE)

    scale = _minimize(head[None], labels, row_weights, np.ones(1), penalty)
    return float(scale[0]), _loss(scale, head[None], labels, row_weights)[0]


def _minimize(
    logits: np.ndarray,
    labels: np.ndarray,
    row_weights: np.ndarray,
    start: np.ndarray,
    penalty: Callable[[np.ndarray], tuple[float, np.ndarray]],
) -> np.ndarray:
    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        (loss, slope), (more, more_slope) = _loss(weights, logits, labels, row_weights), penalty(weights)
        return loss + more, slope + more_slope

    bounds = [(0, MAX_WEIGHT)] * len(logits)
    return minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds).x


def _loss(
    weights: np.ndarray, logits: np.ndarray, labels: np.ndarray, row_weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the summed log loss of the weighted sum of `logits` (H, N, C), and its gradient (H,)."""
    total = np.tensordot(weights, logits, 1)
    rows = np.arange(len(labels))
    loss = -float(log_softmax(total, axis=1)[rows, labels] @ row_weights)
    slope = softmax(total, axis=1)
    slope[rows, labels] -= 1
    return loss, np.tensordot(logits, slope * row_weights[:, None], 2)
