"""Assignment of rows to the splits train, validation and test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqclf.data.ragged import mix
from seqclf.errors import InputError

TURNS = 16  # number of parts into which groups with equal class counts are divided
SIZE_WEIGHT = 4.0  # weight of a split's row count in the assignment error; a class has the weight 1


def assign_groups(
    labels: np.ndarray, keys: np.ndarray, shares: np.ndarray, seed: Sequence[int], *, cover_first: bool
) -> np.ndarray:
    """Assign each group of rows to a split, and return the split of each row as (N,) int64 positions in `shares`.

    The result depends only on the seed and the (key, label) pairs, not on their order. If there are enough groups,
    every split with a fraction above 0 gets one.

    `labels`: (N,) class codes from 0. `keys`: (N,) int64 or uint64 of the groups. `shares`: (K,) fractions of the rows,
    with sum 1. `cover_first`: True if split 0 (train) must get a group with each class.
    """
    if len(labels) == 0:
        return np.empty(0, np.int64)
    distinct, group_of_row = np.unique(keys, return_inverse=True)
    groups = _Groups(labels, group_of_row, len(distinct))
    salt = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    tie_break = mix(distinct.astype(np.uint64) + salt)
    signature = mix(groups.signatures() + salt)
    # Level by level, the heaviest groups first; weights of a level differ at most twofold. The seed orders a level.
    level = -np.floor(np.log2(groups.weights()))
    order, starts = _blocks(level, signature, tie_break)
    sizes = np.diff(np.append(starts, len(order)))
    counts = _Assigner(groups, shares, cover_first, len(order)).assign_blocks(order[starts], sizes)
    split_of_group = np.empty(len(distinct), np.int64)
    split_of_group[order] = np.repeat(np.tile(np.arange(len(shares)), len(sizes)), counts.ravel())
    return split_of_group[group_of_row]


def _blocks(level: np.ndarray, signature: np.ndarray, tie_break: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted group numbers, and the start of each block of groups with the same signature."""
    order = np.lexsort((tie_break, signature, level))
    starts = _changes(signature[order])
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    # Without turns, groups of the first signature alone would make up for an unequal split of heavier ones.
    turn = np.empty(len(order), np.int64)
    turn[order] = rank * TURNS // np.repeat(sizes, sizes)
    order = np.lexsort((tie_break, signature, turn, level))
    return order, np.union1d(_changes(signature[order]), _changes(turn[order]))


def _changes(values: np.ndarray) -> np.ndarray:
    """Return the positions of the values that differ from the value before them, and 0."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


class _Groups:
    """Class counts of G groups in sparse form: those of group g are at `starts[g]:starts[g + 1]` of both arrays."""

    def __init__(self, labels: np.ndarray, group_of_row: np.ndarray, group_count: int):
        self.class_rows = np.bincount(labels)
        pairs, self.counts = np.unique(group_of_row * len(self.class_rows) + labels, return_counts=True)
        self.classes = pairs % len(self.class_rows)
        self.starts = np.searchsorted(pairs, np.arange(group_count + 1) * len(self.class_rows))
        self.rows = len(labels)

    def weights(self) -> np.ndarray:
        """Squared sizes, in the unit of the assignment error."""
        by_class = np.add.reduceat(self.counts**2 / self.class_rows[self.classes], self.starts[:-1])
        return by_class + SIZE_WEIGHT / self.rows * np.add.reduceat(self.counts, self.starts[:-1]) ** 2

    def signatures(self) -> np.ndarray:
        """Groups with equal class counts have equal hashes."""
        entries = mix(mix(self.classes.astype(np.uint64)) + self.counts.astype(np.uint64))
        return np.add.reduceat(entries, self.starts[:-1])


class _Assigner:
    """Greedy assignment of blocks of equal groups to K splits, large groups first.

    The target of a split, its fraction of the rows assigned so far, grows, so that large and small groups are both
    divided in proportion. Counts are plain lists, because NumPy is slower for so few numbers.
    """

    def __init__(self, groups: _Groups, shares: np.ndarray, cover_first: bool, group_count: int):
        self.groups = groups
        self.shares = shares.tolist()
        # Errors of a class are relative to its sampling error, whose variance is proportional to its rows.
        self.class_weight = (1 / np.maximum(1, groups.class_rows)).tolist()
        self.row_weight = SIZE_WEIGHT / groups.rows
        class_count = len(groups.class_rows)
        self.assigned = [0] * class_count  # number of assigned rows of each class
        self.held = [[0] * len(shares) for _ in range(class_count)]  # number of rows of each class in each split
        self.assigned_rows, self.held_rows = 0, [0] * len(shares)
        # number of groups with each class that are not assigned yet
        self.groups_left = np.bincount(groups.classes, minlength=class_count).tolist()
        self.covered = [not cover_first] * class_count  # True for a class that split 0 holds or need not hold
        self.empty = {split for split, share in enumerate(self.shares) if share > 0}
        self.left = group_count

    def assign_blocks(self, firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the (blocks, K) groups that each split gets of block i: `sizes[i]` groups like group `firsts[i]`."""
        classes, counts = self.groups.classes.tolist(), self.groups.counts.tolist()
        starts, stops = self.groups.starts[firsts].tolist(), self.groups.starts[firsts + 1].tolist()
        result = np.empty((len(sizes), len(self.shares)), np.int64)
        for block, (start, stop, size) in enumerate(zip(starts, stops, sizes.tolist(), strict=True)):
            entries = list(zip(classes[start:stop], counts[start:stop], strict=True))
            result[block] = self._assign_block(entries, size)
        return result

    def _assign_block(self, entries: list[tuple[int, int]], size: int) -> list[int]:
        """`entries`: (class, number of rows) pairs of each group of the block."""
        # If split 0 does not hold a class yet, it must get the last group with this class.
        must_cover = False
        for label, count in entries:
            self.assigned[label] += size * count
            self.groups_left[label] -= size
            must_cover |= not self.covered[label] and not self.groups_left[label]
        group_rows = sum(count for _, count in entries)
        self.assigned_rows += size * group_rows
        self.left -= size
        lacking, unit = self._lacking(entries, group_rows)
        forced = []  # splits that must get at least one group of this block
        if len(self.empty) > self.left:
            forced = sorted(self.empty, key=lacking.__getitem__, reverse=True)[: len(self.empty) - self.left]
        if must_cover:
            forced = [0, *(split for split in forced if split)]
        numbers = _groups_per_split(lacking, unit, size, forced, self.shares)
        for split, number in enumerate(numbers):
            if number:
                self.empty.discard(split)
                self.held_rows[split] += number * group_rows
                for label, count in entries:
                    self.held[label][split] += number * count
                    self.covered[label] = self.covered[label] or split == 0
        return numbers

    def _lacking(self, entries: list[tuple[int, int]], group_rows: int) -> tuple[list[float], float]:
        """Return the weighted rows that each split lacks, of the classes and in all, less the unit for each group."""
        target, held = 0.0, [0.0] * len(self.shares)
        unit = 0.0
        for label, count in entries:
            weight = self.class_weight[label] * count
            unit += weight * count
            target += weight * self.assigned[label]
            held = [before + weight * rows for before, rows in zip(held, self.held[label], strict=True)]
        weight = self.row_weight * group_rows
        unit += weight * group_rows
        target += weight * self.assigned_rows
        splits = zip(self.shares, held, self.held_rows, strict=True)
        return [share * target - before - weight * rows for share, before, rows in splits], unit


def _groups_per_split(
    lacking: list[float], unit: float, size: int, forced: list[int], shares: list[float]
) -> list[int]:
    """Divide `size` equal groups as if each in turn went to the split that lacks most; `forced` splits get one."""
    numbers = [0] * len(lacking)
    for split in forced[:size]:
        numbers[split] = 1
    rest = size - sum(numbers)
    if rest == 0:
        return numbers
    lacking_groups = [amount / unit - number for amount, number in zip(lacking, numbers, strict=True)]
    open_splits = [split for split, share in enumerate(shares) if share > 0]
    if rest == 1:
        numbers[max(open_splits, key=lacking_groups.__getitem__)] += 1
        return numbers
    # Find a level such that the excesses over it sum to `rest`, and round them by largest remainders.
    open_splits.sort(key=lacking_groups.__getitem__, reverse=True)
    total = 0.0
    for rank, split in enumerate(open_splits, 1):
        total += lacking_groups[split]
        level = (total - rest) / rank
        if rank == len(open_splits) or lacking_groups[open_splits[rank]] <= level:
            break
    amounts = {split: lacking_groups[split] - level for split in open_splits[:rank]}
    rounded = {split: int(amount) for split, amount in amounts.items()}
    by_remainder = sorted(amounts, key=lambda split: rounded[split] - amounts[split])
    for split in by_remainder[: rest - sum(rounded.values())]:
        rounded[split] += 1
    for split, number in rounded.items():
        numbers[split] += number
    return numbers


NO_KEY = -1  # key of a row without a group; the key of every other row is ≥ 0
GOLDEN_RATIO = (5**0.5 - 1) / 2


def assign(
    labels: np.ndarray,
    shares: dict[str, float],
    by: str,
    keys: np.ndarray | None,
    seed: int,
    fold: tuple[int, int] | None = None,
) -> np.ndarray:
    """Assign rows to splits, and return the split of each row as (N,) int64 positions in `shares`.

    `labels`: (N,) class codes, in about the same proportions in each split. `shares`: dict split → fraction of the
    rows, with sum 1. `keys`: (N,) groups that stay together, or, if `by` is `time`, times, of which the earliest go to
    the first split; None if rows are independent. `fold`: (number, number of folds) or None, for the last split.

    With `keys`, the result does not depend on the order of the rows. Without, a row's split depends on its position.

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
    # With one random stream, the validation splits of all folds would hold nearly the same groups.
    stream = [seed] if keys is None else [seed, 1 + test_fold]
    splits[rest] = _stratified(labels[rest], [share / sum(others) for share in others], rest_keys, stream)
    return splits


def fill_missing_keys(keys: np.ndarray, contents: np.ndarray) -> np.ndarray:
    """Give a unique key to each row that has no group, whatever the order of the rows.

    `keys`: (N,) int64, with NO_KEY for each row without a group. `contents`: (N,) uint64 keys of the sequences.
    """
    missing = np.flatnonzero(keys == NO_KEY)
    distinct, sequence = np.unique(contents[missing], return_inverse=True)
    order = np.argsort(sequence, kind="stable")
    repeat = np.empty(len(missing), np.uint64)  # number of earlier rows that hold an equal sequence
    repeat[order] = np.arange(len(missing)) - np.searchsorted(sequence[order], sequence[order])
    filled = keys.copy()
    # A shift by one bit keeps each key ≥ 0 when it is converted to int64.
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
    """Raise InputError if a split with a fraction above 0 has no rows. `splits`: what `assign` returned."""
    units = len(splits) if keys is None else len(np.unique(keys))
    unit = "rows" if keys is None else "different sequences" if by == "distinct" else f"different values of {column}"
    available = f"there are only {units} {unit}"
    if folds is not None and units < folds:
        raise InputError(f"data.split.folds={folds}", available, "set fewer folds, or give more data")
    required = [name for name, share in shares.items() if name == "train" or share > 0]
    empty = [name for name in required if not (splits == list(shares).index(name)).any()]
    if empty:
        problem = f"none of {len(splits)} rows for {empty[0]}; {available}"
        raise InputError(f"data.split.by={by}", problem, "give more data, another share, or a file of each split")


def _stratified(labels: np.ndarray, shares: list[float], keys: np.ndarray | None, seed: list[int]) -> np.ndarray:
    """The first split gets at least one row of each class, if possible. Rows with equal keys go to the same split."""
    if keys is None:
        return _stratified_rows(labels, shares, seed[0])
    return assign_groups(labels, keys, np.array(shares), seed, cover_first=True)


def _folds(labels: np.ndarray, count: int, keys: np.ndarray | None, seed: int) -> np.ndarray:
    """Return the (N,) int64 fold of each row. Without `keys`, folds and classes in them differ by at most one row."""
    if keys is not None:
        return assign_groups(labels, keys, np.full(count, 1 / count), [seed], cover_first=False)
    folds = np.empty(len(labels), np.int64)
    folds[_shuffled_by_class(labels, seed)] = np.arange(len(labels)) % count
    return folds


def _split_by_time(times: np.ndarray, shares: list[float]) -> np.ndarray:
    """Rows with equal times go to the same split. Each split with a fraction above 0 gets at least one time."""
    distinct, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    ends = np.append(0, np.cumsum(counts))  # number of rows before each distinct time, and of all rows
    last = len(distinct)
    cuts: list[int] = []  # index of the distinct time at which each further split begins
    for position, edge in enumerate(np.cumsum(shares)[:-1] * len(times), 1):
        above = int(np.searchsorted(ends, edge))
        nearest = above - 1 if above and edge - ends[above - 1] <= ends[above] - edge else above
        before = cuts[-1] if cuts else 0
        lowest = before + (position == 1 or shares[position - 1] > 0)
        highest = last - sum(share > 0 for share in shares[position:])
        cuts.append(max(before, min(max(nearest, lowest), highest)))
    return np.searchsorted(cuts, np.arange(last), side="right")[inverse]


def _stratified_rows(labels: np.ndarray, shares: list[float], seed: int) -> np.ndarray:
    """Divide the shuffled rows of each class by the fractions, its first row to the first split.

    Rounding offsets of the classes are multiples of the golden ratio modulo 1, which are spread evenly over [0, 1), so
    every split gets rows even if the data has many classes of two rows.
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
    """Return the (N,) positions of the rows, sorted by class, in random order within a class."""
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")]
