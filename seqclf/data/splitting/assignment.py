"""Assignment of rows to train, validation and test."""

from __future__ import annotations

import numpy as np

from seqclf.data.splitting.groups import assign_groups, mix
from seqclf.errors import InputError

NO_KEY = -1  # key of rows without a group; other keys are not negative
GOLDEN_RATIO = (5**0.5 - 1) / 2


def assign(
    labels: np.ndarray,
    shares: dict[str, float],
    by: str,
    keys: np.ndarray | None,
    seed: int,
    fold: tuple[int, int] | None = None,
) -> np.ndarray:
    """Return the split of each row: (N,) int64 positions in `shares`.

    `labels`: (N,) class codes, kept in proportion. `shares`: name → fraction, whose sum is 1. `keys`: (N,) groups that
    must stay in one split, or for `time` the times to sort by, of which the earliest go to the first split. None if
    each row stands alone. `fold`: (fold, number of folds). The last split is that fold, and the others share the rest.

    With keys the result does not depend on the order of the rows. Without keys a row is identified by its position.

    >>> labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    >>> splits = assign(labels, {"train": 0.75, "validation": 0.25}, "random", None, seed=0)
    >>> [np.bincount(splits[labels == label]).tolist() for label in (0, 1)]
    [[3, 1], [3, 1]]
    """
    if by == "time":
        assert keys is not None
        return _split_by_time(keys, list(shares.values()))
    if fold is None:
        return _stratified(labels, list(shares.values()), keys, [seed])
    test_fold, folds = fold
    *others, _ = shares.values()
    splits = np.full(len(labels), len(others), np.int64)
    rest = _folds(labels, folds, keys, seed) != test_fold
    rest_keys = None if keys is None else keys[rest]
    # Each fold has another random stream. With the stream of the folds, all would validate on nearly the same groups.
    stream = [seed] if keys is None else [seed, 1 + test_fold]
    splits[rest] = _stratified(labels[rest], [share / sum(others) for share in others], rest_keys, stream)
    return splits


def fill_missing_keys(keys: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Give each row without a group a key that no other row has, independent of the order of the rows.

    `keys`: (N,) int64, NO_KEY where missing. `contents`: (N,) uint64, equal where sequences are.
    """
    missing = np.flatnonzero(keys == NO_KEY)
    distinct, sequence = np.unique(contents[missing], return_inverse=True)
    order = np.argsort(sequence, kind="stable")
    repeat = np.empty(len(missing), np.uint64)  # number of equal sequences before each row
    repeat[order] = np.arange(len(missing)) - np.searchsorted(sequence[order], sequence[order])
    filled = keys.copy()
    # Shifted by a bit: keys are not negative.
    filled[missing] = (mix(distinct[sequence] ^ mix(repeat)) >> np.uint64(1)).astype(np.int64)
    return filled


def check_filled(
    splits: np.ndarray,
    shares: dict[str, float],
    by: str,
    column: str | None,
    keys: np.ndarray | None,
    folds: int | None,
) -> None:
    """Raise InputError if a split with a share has no rows. `splits`: the result of `assign` for these arguments."""
    units = len(splits) if keys is None else len(np.unique(keys))
    if keys is None:
        available = f"there are {units} rows"
    elif by == "distinct":
        available = f"there are {units} different sequences"
    else:
        key = "data.split.column" if by == "time" else "data.group"
        available = f"{key}={column} has {units} different value{'s' * (units != 1)}"
    if folds is not None and units < folds:
        remedy = f"set data.split.folds={units}" if units > 1 else "split by data.split.by=random"
        raise InputError(f"data.split.folds={folds}", available, f"{remedy}, or give more data")
    required = [name for position, name in enumerate(shares) if position == 0 or shares[name] > 0]
    empty = [name for name in required if not (splits == list(shares).index(name)).any()]
    if not empty:
        return
    # An empty train is named by the last split, as a file for that would give train its rows.
    lacking = next(name for name in [*empty, required[-1]] if name != "train")
    remedy = "give more rows, or another share"
    if keys is not None and units < len(required):
        remedy = available
    elif keys is not None and by != "time":
        remedy = "train needs the other groups to have every class"
    file = "" if folds is not None and lacking == "test" else f", or give a file for it: data.{lacking}=FILE"
    raise InputError(f"data.split.by={by}", f"none of {len(splits)} rows for {lacking}", f"{remedy}{file}")


def _stratified(labels: np.ndarray, shares: list[float], keys: np.ndarray | None, seed: list[int]) -> np.ndarray:
    """Keep classes in proportion and, where possible, every class in the first split and every key in one split."""
    if keys is None:
        return _stratified_rows(labels, shares, seed[0])
    return assign_groups(labels, keys, np.array(shares), seed, cover_first=True)


def _folds(labels: np.ndarray, count: int, keys: np.ndarray | None, seed: int) -> np.ndarray:
    """(N,) int64 fold of each row. Without keys, folds and the classes in them differ by at most one row in size."""
    if keys is not None:
        return assign_groups(labels, keys, np.full(count, 1 / count), [seed], cover_first=False)
    folds = np.empty(len(labels), np.int64)
    folds[_shuffled_by_class(labels, seed)] = np.arange(len(labels)) % count
    return folds


def _split_by_time(times: np.ndarray, shares: list[float]) -> np.ndarray:
    """Cut at the times nearest to the shares. Equal times stay together, and every split with a share gets a time."""
    distinct, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    ends = np.append(0, np.cumsum(counts))  # rows before each distinct time
    last = len(distinct)
    cuts: list[int] = []  # positions among the distinct times
    for position, edge in enumerate(np.cumsum(shares)[:-1] * len(times), 1):
        above = int(np.searchsorted(ends, edge))
        nearest = above - 1 if above and edge - ends[above - 1] <= ends[above] - edge else above
        before = cuts[-1] if cuts else 0
        lowest = before + (position == 1 or shares[position - 1] > 0)
        highest = last - sum(share > 0 for share in shares[position:])
        cuts.append(max(before, min(max(nearest, lowest), highest)))
    return np.searchsorted(cuts, np.arange(last), side="right")[inverse]


def _stratified_rows(labels: np.ndarray, shares: list[float], seed: int) -> np.ndarray:
    """Shuffle each class and cut it at the shares. The first row of every class goes to the first split.

    A share of a class is rarely an integer. The rounding offset varies from class to class by the golden ratio, whose
    multiples spread evenly over [0, 1), so many classes of two rows still fill every split.
    """
    order = _shuffled_by_class(labels, seed)
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = (0.5 + GOLDEN_RATIO * np.arange(len(counts))) % 1
    quantiles = (ranks + np.repeat(offsets, counts)) / np.repeat(counts, counts)
    splits = np.empty(len(labels), np.int64)
    splits[order] = np.searchsorted(np.cumsum(shares)[:-1], quantiles, side="right")
    splits[order[ranks == 0]] = 0
    return splits


def _shuffled_by_class(labels: np.ndarray, seed: int) -> np.ndarray:
    """(N,) positions of the rows, class by class, in random order within each."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]
