"""Measure how far the scaled values of number channels spread within sequences."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

ROUNDING = 1e-7  # precision of float32, the type of the model's inputs
MIN_WITHIN = 0.01  # smaller differences within a sequence are lost in the weights of a network, with and without noise


def fit_within(read: Iterable[tuple[np.ndarray, np.ndarray]], channels: int) -> np.ndarray:
    """Return the (channels,) standard deviations of scaled values within sequences, from `MIN_WITHIN` to 1.

    The variance is pooled over all sequences, with n - 1 degrees of freedom for n values; values that do not depend on
    their sequence have about 1. A channel that is constant in every sequence has no shape that noise could drown, and
    gets 1.

    `read`: pairs (values (S, channels) with NaN where missing, lengths (N,)), one for each record batch.

    >>> fit_within([(np.array([[-1.0], [-0.9], [1.0], [1.1]]), np.array([2, 2]))], 1).round(3).tolist()
    [0.071]
    """
    squares, degrees = np.zeros(channels), np.zeros(channels)
    for values, lengths in read:
        lengths = lengths[lengths > 0]  # reduceat cannot sum over an empty sequence
        if not len(lengths):
            continue
        starts = np.cumsum(lengths) - lengths
        seen = ~np.isnan(values)
        count = np.add.reduceat(seen, starts, axis=0, dtype=np.int64)
        centred = np.where(seen, values, 0.0)
        mean = np.add.reduceat(centred, starts, axis=0) / np.maximum(1, count)
        centred = np.where(seen, centred - np.repeat(mean, lengths, axis=0), 0.0)
        with np.errstate(over="ignore"):
            squares += np.square(centred).sum(axis=0)
        degrees += np.maximum(0, count - 1).sum(axis=0)
    within = np.sqrt(squares / np.maximum(1, degrees))
    # The mean of equal values has a rounding error.
    return np.where(within > ROUNDING, np.clip(within, MIN_WITHIN, 1.0), 1.0)
