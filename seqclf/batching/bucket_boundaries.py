"""A small set of lengths to which all others are rounded up, for computing that wants fixed shapes."""

from __future__ import annotations

import numpy as np

MOST_CANDIDATES = 512


def bucket_edges(lengths: np.ndarray, count: int) -> np.ndarray:
    """At most `count` ascending lengths, the last the longest, to which rounding up adds the fewest steps.

    Exact for up to `MOST_CANDIDATES` different lengths; of more, the edges are chosen among their quantiles.
    """
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > MOST_CANDIDATES:
        chosen = np.unique(np.quantile(lengths, np.linspace(0, 1, MOST_CANDIDATES + 1), method="higher"))
        counts = np.add.reduceat(counts, np.concatenate([[0], np.searchsorted(values, chosen[:-1], side="right")]))
        values = chosen
    if len(values) <= count:
        return values
    below = np.concatenate([[0], np.cumsum(counts)])
    # added[i, j]: all that is longer than the i-th value, up to the j-th, is rounded up to the j-th.
    added = (below[None, 1:] - below[:-1, None]) * values[None, :].astype(np.float64)
    added[np.tril_indices(len(values), -1)] = np.inf
    best = added[0]
    choices = []
    for _ in range(count - 1):
        totals = best[:-1, None] + added[1:]
        choice = totals.argmin(axis=0)
        better = totals[choice, np.arange(len(values))]
        choices.append(np.where(better < best, choice, -1))
        best = np.minimum(better, best)
    edges = [len(values) - 1]
    for choice in reversed(choices):
        if choice[edges[-1]] >= 0:
            edges.append(int(choice[edges[-1]]))
    return values[edges[::-1]]


def round_up(lengths: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Each length's edge; one beyond the last stays as it is."""
    places = np.searchsorted(edges, lengths)
    return np.where(places < len(edges), edges[np.minimum(places, len(edges) - 1)], lengths)
