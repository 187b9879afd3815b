"""Which rows train, which validate, which test."""

from __future__ import annotations

import numpy as np

from seqclf.errors import InputError

WAYS = ("random", "distinct", "group", "time")


def assign(labels: np.ndarray, shares: dict[str, float], by: str, keys: np.ndarray | None, seed: int) -> np.ndarray:
    """The split of each row: (N,) int64 positions in `shares` (in its order; the shares sum to 1).

    `labels`: (N,) class of each row, kept in proportion; `keys`: (N,) what must not be shared between splits (`group`,
    `distinct`), or the time to sort by (`time`: the earliest rows go to the first split).
    """
    if any(not 0 <= share <= 1 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-9:
        raise InputError(f"data.split: shares {shares} must each be in [0, 1] and sum to 1")
    if by == "time":
        assert keys is not None
        ranks = np.empty(len(labels), np.int64)
        ranks[np.argsort(keys, kind="stable")] = np.arange(len(labels))
        return _by_rank(ranks, len(labels), shares)
    if by == "random":
        return _stratified(labels, shares, seed)
    if by in ("group", "distinct"):
        _, first, member = np.unique(keys, return_index=True, return_inverse=True)
        return _stratified(labels[first], shares, seed)[member]
    raise InputError(f"data.split.by={by}: must be one of {', '.join(WAYS)}")


def _by_rank(ranks: np.ndarray, count: int, shares: dict[str, float]) -> np.ndarray:
    """Rows whose rank is in the first share of `count` go to the first split, and so on."""
    edges = np.round(np.cumsum(list(shares.values())) * count)
    return np.searchsorted(edges, ranks, side="right")


def _stratified(labels: np.ndarray, shares: dict[str, float], seed: int) -> np.ndarray:
    """Each class is shuffled and cut at the shares, so that a class of one row goes to the first split."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = (ranks + 0.5) / np.repeat(counts, counts)
    split = np.empty(len(labels), np.int64)
    split[order] = np.searchsorted(np.cumsum(list(shares.values()))[:-1], places, side="right")
    return split
