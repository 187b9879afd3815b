"""Assignment of rows to train, validation and test."""

from __future__ import annotations

import numpy as np

from seqclf.data.splitting.group_assignment import deal_groups, mix
from seqclf.errors import InputError

WAYS = ("random", "distinct", "group", "time", "fold")
NO_KEY = -1  # of rows that have no group; other keys are not negative
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

    With keys the result does not depend on the order of the rows; without them a row is known by its position.
    """
    if by == "time":
        assert keys is not None
        return _by_time(keys, list(shares.values()))
    if fold is None:
        return _dealt(labels, list(shares.values()), keys, [seed])
    which, count = fold
    *others, _ = shares.values()
    parts = np.full(len(labels), len(others), np.int64)
    rest = _folds(labels, count, keys, seed) != which
    rest_keys = None if keys is None else keys[rest]
    # Another stream for each fold: with that of the folds, all would validate on much the same groups.
    stream = [seed] if keys is None else [seed, 1 + which]
    parts[rest] = _dealt(labels[rest], [share / sum(others) for share in others], rest_keys, stream)
    return parts


def fill_missing_keys(keys: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Give each row without a group a key that no other row has, whatever the order of the rows.

    `keys`: (N,) int64, NO_KEY where missing; `contents`: (N,) uint64, equal where sequences are.
    """
    missing = np.flatnonzero(keys == NO_KEY)
    distinct, member = np.unique(contents[missing], return_inverse=True)
    order = np.argsort(member, kind="stable")
    repeat = np.empty(len(missing), np.uint64)  # how many equal sequences come before
    repeat[order] = np.arange(len(missing)) - np.searchsorted(member[order], member[order])
    filled = keys.copy()
    filled[missing] = (mix(distinct[member] ^ mix(repeat)) >> np.uint64(1)).astype(np.int64)
    return filled


def check_filled(
    parts: np.ndarray, shares: dict[str, float], by: str, column: str | None, keys: np.ndarray | None, folds: int | None
) -> None:
    """Raise if a split that should have rows has none; the arguments are those of `assign`, and its result `parts`."""
    units = len(parts) if keys is None else len(np.unique(keys))
    if keys is None:
        there = f"there are {units} rows"
    elif by == "distinct":
        there = f"there are {units} different sequences"
    else:
        there = f"data.split.column={column} has {units} different value{'s' * (units != 1)}"
    if folds is not None and units < folds:
        remedy = f"set data.split.folds={units}" if units > 1 else "split by data.split.by=random"
        raise InputError(f"data.split.folds={folds}: {there}; {remedy}, or give more data")
    asked = [name for position, name in enumerate(shares) if position == 0 or shares[name] > 0]
    empty = [name for name in asked if not (parts == list(shares).index(name)).any()]
    if not empty:
        return
    lacking = next(name for name in [*empty, asked[-1]] if name != "train")
    remedy = "give more rows, or another share"
    if keys is not None and units < len(asked):
        remedy = there
    elif keys is not None and by != "time":
        remedy = "train needs the other groups to have every class"
    file = "" if folds is not None and lacking == "test" else f", or give a file for it: data.{lacking}=FILE"
    raise InputError(f"data.split.by={by} leaves none of {len(parts)} rows for {lacking}; {remedy}{file}")


def _dealt(labels: np.ndarray, shares: list[float], keys: np.ndarray | None, seed: list[int]) -> np.ndarray:
    """Stratified, and every class in the first split where it can be; rows of one key stay in one split."""
    if keys is None:
        return _stratified(labels, shares, seed[0])
    return deal_groups(labels, keys, np.array(shares), seed, cover_first=True)


def _folds(labels: np.ndarray, count: int, keys: np.ndarray | None, seed: int) -> np.ndarray:
    """The fold of each row: (N,) int64. Without keys all folds, and each class in them, differ by one row at most."""
    if keys is not None:
        return deal_groups(labels, keys, np.full(count, 1 / count), [seed], cover_first=False)
    folds = np.empty(len(labels), np.int64)
    folds[_shuffled_by_class(labels, seed)] = np.arange(len(labels)) % count
    return folds


def _by_time(times: np.ndarray, shares: list[float]) -> np.ndarray:
    """Cut at the times nearest to the shares; equal times stay together, and every split with a share gets a time."""
    distinct, member, counts = np.unique(times, return_inverse=True, return_counts=True)
    ends = np.append(0, np.cumsum(counts))  # rows up to each time
    last = len(distinct)
    cuts: list[int] = []
    for position, edge in enumerate(np.cumsum(shares)[:-1] * len(times), 1):
        above = int(np.searchsorted(ends, edge))
        nearest = above - 1 if above and edge - ends[above - 1] <= ends[above] - edge else above
        before = cuts[-1] if cuts else 0
        lowest = before + (position == 1 or shares[position - 1] > 0)
        highest = last - sum(share > 0 for share in shares[position:])
        cuts.append(max(before, min(max(nearest, lowest), highest)))
    return np.searchsorted(cuts, np.arange(last), side="right")[member]


def _stratified(labels: np.ndarray, shares: list[float], seed: int) -> np.ndarray:
    """Each class is shuffled and cut at the shares; the first row of every class goes to the first split.

    What is left over when a share of a class is no whole number of rows differs from class to class (by the golden
    ratio, which spreads evenly), so that many classes of two rows still fill every split.
    """
    order = _shuffled_by_class(labels, seed)
    counts = np.bincount(labels)
    ranks = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    offsets = (0.5 + GOLDEN * np.arange(len(counts))) % 1
    places = (ranks + np.repeat(offsets, counts)) / np.repeat(counts, counts)
    split = np.empty(len(labels), np.int64)
    split[order] = np.searchsorted(np.cumsum(shares)[:-1], places, side="right")
    split[order[ranks == 0]] = 0
    return split


def _shuffled_by_class(labels: np.ndarray, seed: int) -> np.ndarray:
    """Positions of the (N,) rows, class by class, drawn at random within each."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]
