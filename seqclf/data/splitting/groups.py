"""Assignment of groups of rows to splits: groups stay together, and every class keeps its proportion.

The greedy rule is that of scikit-learn's StratifiedGroupKFold: heavy groups come first, and each goes to the split that
lacks its classes most. It differs in three ways. Splits may have different shares. Groups with equal class counts are
assigned together, so a million groups take seconds. Ties are broken by a hash of key and seed, so the order of the rows
does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TURNS = 16  # parts in which the groups of one signature are assigned
SIZE_WEIGHT = 4.0  # of a split's number of rows, compared with the number of rows of one class
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def assign_groups(
    labels: np.ndarray, keys: np.ndarray, shares: np.ndarray, seed: Sequence[int], *, cover_first: bool
) -> np.ndarray:
    """Return the split of each row: (N,) int64 positions in `shares`.

    The result is a function of the pairs (key, label) and the seed: the same rows in another order get the same splits.
    If there are enough groups, every split with a share gets one.

    `labels`: (N,) class codes from 0. `keys`: (N,) int64 or uint64. Rows of one key stay in one split. `shares`: (K,),
    whose sum is 1. `cover_first`: split 0 (train) gets a group of every class.
    """
    if len(labels) == 0:
        return np.empty(0, np.int64)
    distinct, group_of_row = np.unique(keys, return_inverse=True)
    groups = _Groups(labels, group_of_row, len(distinct))
    salt = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    tie_break = mix(distinct.astype(np.uint64) + salt)
    signature = mix(groups.signatures() + salt)
    # A level is a factor of two in weight. Heavier levels come first, and the seed orders the groups of a level.
    level = -np.floor(np.log2(groups.weights()))
    order, starts = _blocks(level, signature, tie_break)
    sizes = np.diff(np.append(starts, len(order)))
    counts = _Assigner(groups, shares, cover_first, len(order)).assign_blocks(order[starts], sizes)
    split_of_group = np.empty(len(distinct), np.int64)
    split_of_group[order] = np.repeat(np.tile(np.arange(len(shares)), len(sizes)), counts.ravel())
    return split_of_group[group_of_row]


def _blocks(level: np.ndarray, signature: np.ndarray, tie_break: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order of the (G,) groups, and the positions in it at which blocks of equal signature start."""
    order = np.lexsort((tie_break, signature, level))
    starts = _changes(signature[order])
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    # Signatures of one level take turns. Otherwise the first signature alone would balance a heavy group.
    turn = np.empty(len(order), np.int64)
    turn[order] = rank * TURNS // np.repeat(sizes, sizes)
    order = np.lexsort((tie_break, signature, turn, level))
    return order, np.union1d(_changes(signature[order]), _changes(turn[order]))


def _changes(values: np.ndarray) -> np.ndarray:
    """Positions at which (N,) values differ from the previous one, including the first."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def mix(values: np.ndarray) -> np.ndarray:
    """Hash (N,) uint64 (splitmix64 of Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators")."""
    values = values + GOLDEN_GAMMA
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Groups:
    """Class counts of G groups, as sparse triples sorted by group and class.

    Group g has `counts[starts[g]:starts[g + 1]]` rows of the classes at the same positions of `classes`.
    """

    def __init__(self, labels: np.ndarray, group_of_row: np.ndarray, group_count: int):
        self.class_rows = np.bincount(labels)
        pairs, self.counts = np.unique(group_of_row * len(self.class_rows) + labels, return_counts=True)
        self.classes = pairs % len(self.class_rows)
        self.starts = np.searchsorted(pairs, np.arange(group_count + 1) * len(self.class_rows))
        self.rows = len(labels)

    def weights(self) -> np.ndarray:
        """(G,) squared size of each group, in the units in which splits are compared."""
        by_class = np.add.reduceat(self.counts**2 / self.class_rows[self.classes], self.starts[:-1])
        return by_class + SIZE_WEIGHT / self.rows * np.add.reduceat(self.counts, self.starts[:-1]) ** 2

    def signatures(self) -> np.ndarray:
        """(G,) uint64, equal for groups of equal class counts."""
        entries = mix(mix(self.classes.astype(np.uint64)) + self.counts.astype(np.uint64))
        return np.add.reduceat(entries, self.starts[:-1])


class _Assigner:
    """Greedy assignment of blocks of equal groups, and the rows that the K splits hold so far.

    A split lacks rows if it holds less than its share of all rows assigned so far. Targets that grow with what is
    assigned keep small and large groups in proportion too. Plain lists are used, as numpy is slower on so few numbers.
    """

    def __init__(self, groups: _Groups, shares: np.ndarray, cover_first: bool, group_count: int):
        self.groups = groups
        self.shares = shares.tolist()
        # Errors count in units of the sampling error of a class, whose variance grows with its rows.
        self.class_weight = (1 / np.maximum(1, groups.class_rows)).tolist()
        self.row_weight = SIZE_WEIGHT / groups.rows
        class_count = len(groups.class_rows)
        self.assigned = [0] * class_count  # rows of each class
        self.held = [[0] * len(shares) for _ in range(class_count)]  # rows of each class in each split
        self.assigned_rows, self.held_rows = 0, [0] * len(shares)
        self.groups_left = np.bincount(groups.classes, minlength=class_count).tolist()  # that hold each class
        self.covered = [not cover_first] * class_count  # classes that split 0 holds
        self.empty = {split for split, share in enumerate(self.shares) if share > 0}
        self.left = group_count

    def assign_blocks(self, firsts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """(blocks, K) int64 groups of each block in each split. A block is `sizes[i]` groups like `firsts[i]`."""
        classes, counts = self.groups.classes.tolist(), self.groups.counts.tolist()
        starts, stops = self.groups.starts[firsts].tolist(), self.groups.starts[firsts + 1].tolist()
        result = np.empty((len(sizes), len(self.shares)), np.int64)
        for block, (start, stop, size) in enumerate(zip(starts, stops, sizes.tolist(), strict=True)):
            entries = list(zip(classes[start:stop], counts[start:stop], strict=True))
            result[block] = self._assign_block(entries, size)
        return result

    def _assign_block(self, entries: list[tuple[int, int]], size: int) -> list[int]:
        """Number of the `size` equal groups that each split gets. `entries`: (class, rows) of one group."""
        # The class would be missing in split 0 if that did not get the last group that holds it.
        must_cover = False
        for label, count in entries:
            self.assigned[label] += size * count
            self.groups_left[label] -= size
            must_cover |= not self.covered[label] and not self.groups_left[label]
        group_rows = sum(count for _, count in entries)
        self.assigned_rows += size * group_rows
        self.left -= size
        lacking, unit = self._lacking(entries, group_rows)
        forced = []  # empty splits that would get none of the groups left
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
        """Weighted rows of a group's classes that each split lacks, and how much less one group more makes it lack."""
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
    """Number of `size` equal groups that each split gets: where it lacks most first, as if assigned one by one.

    A group that goes to a split lowers what the split lacks by `unit`. Splits in `forced` get at least one.
    """
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
    # Lower a common level until the amounts above it sum to `rest`, then round by largest remainders.
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
