"""Weights of heads and scales of the terms of their logits, chosen by rows that a fit left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from seqclf.batching.batches import SplitRows
from seqclf.models.network import vote

# Rows and cells of logits up to which validation rows set the weights of the heads.
WEIGHTED_ROWS, WEIGHTED_CELLS = 20_000, 10_000_000
MAX_WEIGHT = 5.0
MIN_SCALE = 1e-3
MAX_FACTOR = 1e4  # largest scale of a term, in units of one over its root mean square
# Both constants were chosen on validation draws of 30 to 300 rows of twelve generated sets (docs/log.md).
TEMPER = 0.1  # factor of the summed log likelihoods that the first guess goes by
PRIOR = 2.0  # penalty of a squared distance from the first guess, in nats


@torch.inference_mode()
def set_weights(network: Any, rows: SplitRows) -> str:
    """Set the weights of the heads of each member of a `HeadsClassifier`, and return a text about them."""
    chosen, texts = _weighing(network, rows), []
    labels = rows.labels[chosen]
    for weights, logits in zip(network.weights, _logits(network, rows, chosen), strict=True):
        found = fit_head_weights(logits, labels, _row_weights(rows, chosen))
        weights.copy_(torch.from_numpy(found))
        texts.append(", ".join(f"{name} {weight:.2f}" for name, weight in zip(network.names, found, strict=True)))
    return f"{'; '.join(texts)}, by {len(chosen):,} validation rows"


@torch.inference_mode()
def cross_fitted(network: Any, rows: SplitRows, fifth: np.ndarray) -> np.ndarray:
    chosen, members = _weighing(network, rows), []
    labels, all_rows = rows.labels[chosen], np.arange(len(rows))
    for final, logits in zip(network.weights.cpu().numpy(), _logits(network, rows, all_rows), strict=True):
        sums = np.tensordot(final, logits, 1)
        weights = _row_weights(rows, chosen)
        sums[chosen] = cross_fitted_sums(logits[:, chosen], labels, weights, final, fifth[chosen])
        members.append(sums)
    return members[0] if len(members) == 1 else vote(torch.from_numpy(np.stack(members))).numpy()


def sample(rows: SplitRows, most: int, seed: int) -> np.ndarray:
    """Return the rising positions of a sample of at most `most` rows."""
    return np.sort(rows.sample(most, 2**62, seed))


def _row_weights(rows: SplitRows, chosen: np.ndarray) -> np.ndarray:
    weights = rows.class_weights[rows.labels[chosen]]
    return weights if rows.weights is None else weights * rows.weights[chosen]


def _weighing(network: Any, rows: SplitRows) -> np.ndarray:
    most = max(1, min(WEIGHTED_ROWS, WEIGHTED_CELLS // len(rows.class_weights)))
    return sample(rows, most, network.config.front.kernel_seed)


def _logits(network: Any, rows: SplitRows, chosen: np.ndarray) -> np.ndarray:
    """Return the logits (members, H, N, C) of the `chosen` rows."""
    logits = np.empty((*network.weights.shape, len(chosen), len(rows.class_weights)), np.float32)
    for batch in rows.batches(chosen):
        of_members = network.head_logits(batch.fields, batch.lengths, batch.lengths.cpu().numpy())
        stacked = torch.stack([torch.stack(of_heads) for of_heads in of_members])
        logits[:, :, np.searchsorted(chosen, batch.rows)] = stacked.float().cpu().numpy()
    return logits


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


def choose_scales(
    terms: np.ndarray, labels: np.ndarray, start: np.ndarray, row_weights: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Return the lowest mean log loss of the sum of `terms` (K, N, C), each times a scale, and the scales (K,).

    `row_weights`: (N,) weights of the rows, of mean 1, None for equal ones.

    One imagined row with the mean loss of all rows and classes is added: else, rows that are all right would make the
    scales infinite. In the example, the first term tells the labels of most rows, the second one nothing:

    >>> labels = np.arange(40) % 2
    >>> told = np.eye(2)[np.where(np.arange(40) < 4, 1 - labels, labels)]
    >>> _, scales = choose_scales(np.stack([told, np.eye(2)[np.arange(40) // 2 % 2]]), labels, np.ones(2))
    >>> scales.round(1).tolist()
    [2.1, 0.0]
    """
    if not len(labels):
        return np.inf, np.ones(len(terms))
    rows = np.arange(len(labels))
    sizes = np.sqrt((terms**2).mean(axis=(1, 2))) + 1e-9  # the search is faster between terms of one size
    given = np.ones(len(rows)) if row_weights is None else row_weights
    average = terms.mean(axis=(1, 2)) if row_weights is None else terms.mean(axis=2) @ given / len(rows)
    known = (terms[:, rows, labels] * given).sum(axis=1) + average

    def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
        logits = np.tensordot(factors / sizes, terms, 1)
        top = logits.max(axis=1, keepdims=True)
        weights = np.exp(logits - top)
        sums = weights.sum(axis=1, keepdims=True)
        log_sum = ((np.log(sums) + top) * given[:, None]).sum() * (1 + 1 / len(rows))
        expected = np.tensordot(terms, weights / sums * given[:, None], 2) * (1 + 1 / len(rows))
        return float(log_sum - known @ (factors / sizes)) / len(rows), (expected - known) / sizes / len(rows)

    found = minimize(loss, start * sizes, jac=True, method="L-BFGS-B", bounds=[(0, MAX_FACTOR)] * len(terms))
    return float(found.fun), found.x / sizes


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
