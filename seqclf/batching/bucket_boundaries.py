"""Bucket boundaries: a few lengths to which all others are rounded up, for computing with fixed shapes."""

from __future__ import annotations

import numpy as np

MOST_CANDIDATES = 512  # different lengths; time and memory grow with their square


def bucket_edges(lengths: np.ndarray, count: int) -> np.ndarray:
    """Choose at most `count` ascending lengths, ending in the longest, to which rounding up adds the fewest tokens.

    The choice is exact for up to `MOST_CANDIDATES` different lengths. Beyond that, edges are chosen among quantiles.

    >>> bucket_edges(np.array([3, 4, 4, 9, 10]), count=2).tolist()
    [4, 10]
    """
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > MOST_CANDIDATES:
        quantiles = np.unique(np.quantile(lengths, np.linspace(0, 1, MOST_CANDIDATES + 1), method="higher"))
        counts = np.add.reduceat(counts, np.concatenate([[0], np.searchsorted(values, quantiles[:-1], side="right")]))
        values = quantiles
    if len(values) <= count:
        return values
    below = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: tokens if all lengths longer than the i-th value, up to the j-th, are rounded up to the j-th.
    cost = (below[None, 1:] - below[:-1, None]) * values[None, :].astype(np.float64)
    cost[np.tril_indices(len(values), -1)] = np.inf
    # Dynamic programming over the number of edges. lowest[j]: cost of all lengths up to the j-th value, itself an edge.
    lowest = cost[0]
    choices = []
    for _ in range(count - 1):
        totals = lowest[:-1, None] + cost[1:]
        choice = totals.argmin(axis=0)
        lower = totals[choice, np.arange(len(values))]
        choices.append(np.where(lower < lowest, choice, -1))
        lowest = np.minimum(lower, lowest)
    edges = [len(values) - 1]
    for choice in reversed(choices):
        if choice[edges[-1]] >= 0:
            edges.append(int(choice[edges[-1]]))
    return values[edges[::-1]]


def round_up(lengths: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Round each length up to the next edge. A length beyond the last edge stays as it is.

    >>> round_up(np.array([1, 5, 6, 11]), np.array([5, 9])).tolist()
    [5, 5, 9, 11]
    """
    indices = np.searchsorted(edges, lengths)
    return np.where(indices < len(edges), edges[np.minimum(indices, len(edges) - 1)], lengths)
