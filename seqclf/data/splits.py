"""Which rows train, which validate, which test."""

from __future__ import annotations

import numpy as np

from seqclf.errors import InputError

WAYS = ("random", "distinct", "group", "time", "fold")
GOLDEN = (5**0.5 - 1) / 2


def check(by: str, column: str | None, shares: dict[str, float], seed: int) -> None:
    """Raise unless the keys of data.split make sense; `shares`: of validation and test."""
    if by not in WAYS:
        raise InputError(f"data.split.by={by}: must be one of {', '.join(WAYS)}")
    if by in ("time", "group") and column is None:
        raise InputError(f"data.split.by={by} needs data.split.column=COLUMN")
    for name, share in shares.items():
        if not (isinstance(share, (int, float)) and 0 <= share <= 1):
            raise InputError(f"data.split.{name}={share}: must be a share from 0 to 1")
    if sum(shares.values()) >= 1:
        given = " and ".join(f"data.split.{name}={share}" for name, share in shares.items())
        raise InputError(f"{given} leave nothing for train; their sum must be below 1")
    if type(seed) is not int or seed < 0:
        raise InputError(f"data.split.seed={seed}: must be a whole number from 0")


def check_fold(folds: int, fold: int, test_given: bool) -> None:
    if type(folds) is not int or folds < 2:
        raise InputError(f"data.split.folds={folds}: must be a whole number from 2")
    if type(fold) is not int or not 0 <= fold < folds:
        raise InputError(f"data.split.fold={fold}: must be a whole number from 0 to {folds - 1}")
    if test_given:
        raise InputError("data.split.by=fold: makes the test of a fold of train; leave out data.test, or fold")


def assign(
    labels: np.ndarray,
    shares: dict[str, float],
    by: str,
    keys: np.ndarray | None,
    seed: int,
    fold: tuple[int, int] | None = None,
) -> np.ndarray:
    """The split of each row: (N,) int64 positions in `shares` (in its order; the shares sum to 1).

    `labels`: (N,) class of each row, kept in proportion; `keys`: (N,) what must not be shared between splits (`group`,
    `distinct`; `random` and `fold` where given), or the time to sort by (`time`: the earliest rows go to the first
    split). With `fold`, (which, of how many), the last split is that fold and the others share the rest.
    """
    if fold is not None:
        which, count = fold
        folds = _together(labels, {str(number): 1 / count for number in range(count)}, keys, seed)
        *others, _ = shares
        total = sum(shares[name] for name in others)
        rest = folds != which
        parts = np.full(len(labels), len(others), np.int64)
        own = None if keys is None else keys[rest]
        parts[rest] = _together(labels[rest], {name: shares[name] / total for name in others}, own, seed)
        return parts
    if by == "time":
        assert keys is not None
        ranks = np.empty(len(labels), np.int64)
        ranks[np.argsort(keys, kind="stable")] = np.arange(len(labels))
        return _by_rank(ranks, len(labels), shares)
    return _together(labels, shares, keys, seed)


def _together(labels: np.ndarray, shares: dict[str, float], keys: np.ndarray | None, seed: int) -> np.ndarray:
    """Stratified; rows of one key stay in one split."""
    if keys is None:
        return _stratified(labels, shares, seed)
    _, first, member = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)  # groups as they first appear, whatever their keys
    split = np.empty(len(first), np.int64)
    split[order] = _stratified(labels[first[order]], shares, seed)
    return split[member]


def _by_rank(ranks: np.ndarray, count: int, shares: dict[str, float]) -> np.ndarray:
    """Rows whose rank is in the first share of `count` go to the first split, and so on."""
    edges = np.round(np.cumsum(list(shares.values())) * count)
    return np.searchsorted(edges, ranks, side="right")


def _stratified(labels: np.ndarray, shares: dict[str, float], seed: int) -> np.ndarray:
    """Each class is shuffled and cut at the shares; the first row of every class goes to the first split.

    What is left over when a share of a class is no whole number of rows differs from class to class (by the golden
    ratio, which spreads evenly), so that many classes of two rows still fill every split.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = (0.5 + GOLDEN * np.arange(len(counts))) % 1
    places = (ranks + np.repeat(offsets, counts)) / np.repeat(counts, counts)
    split = np.empty(len(labels), np.int64)
    split[order] = np.searchsorted(np.cumsum(list(shares.values()))[:-1], places, side="right")
    split[order[ranks == 0]] = 0
    return split
