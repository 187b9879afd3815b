"""Groups of rows → splits: groups stay whole, and every class keeps its proportion.

The greedy rule is that of scikit-learn's StratifiedGroupKFold: groups that weigh much come first, and each goes to the
split that lacks its classes most. It differs in three ways. Splits may have different shares. Groups with equal class
counts are dealt together, so a million groups take seconds. Ties are broken by a hash of key and seed, so the order of
the rows does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TURNS = 16  # parts in which the groups of one signature are dealt
ALL_ROWS = 4.0  # weight of a split's size next to the weight of one class, which is 1
GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def deal_groups(
    labels: np.ndarray, keys: np.ndarray, shares: np.ndarray, seed: Sequence[int], *, cover_first: bool
) -> np.ndarray:
    """The split of each row: (N,) int64, positions in `shares`.

    A function of the pairs (key, label) and the seed: the same rows in another order get the same splits. Where there
    are enough groups, every split with a share gets one.

    `labels`: (N,) class codes from 0; `keys`: (N,) int64 or uint64, rows of one key stay in one split; `shares`: (K,),
    their sum is 1. With `cover_first`, split 0 (train) gets a group of every class.
    """
    if len(labels) == 0:
        return np.empty(0, np.int64)
    distinct, group_of_row = np.unique(keys, return_inverse=True)
    groups = _Groups(labels, group_of_row, len(distinct))
    salt = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    tie_break = mix(distinct.astype(np.uint64) + salt)
    signature = mix(groups.signatures() + salt)
    # A level is a factor of two in weight: heavier levels first, and within a level an order drawn by the seed.
    level = -np.floor(np.log2(groups.weights()))
    order, starts = _blocks(level, signature, tie_break)
    sizes = np.diff(np.append(starts, len(order)))
    counts = _deal_blocks(groups, order[starts], sizes, shares, cover_first)
    split_of_group = np.empty(len(distinct), np.int64)
    split_of_group[order] = np.repeat(np.tile(np.arange(len(shares)), len(sizes)), counts.ravel())
    return split_of_group[group_of_row]


def _blocks(level: np.ndarray, signature: np.ndarray, tie_break: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An order of the (G,) groups, and the positions in it where blocks of groups of one signature start."""
    order = np.lexsort((tie_break, signature, level))
    starts = _changes(signature[order])
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    # Signatures of one level take turns, or the first of them alone would make good for a heavy group.
    turn = np.empty(len(order), np.int64)
    turn[order] = rank * TURNS // np.repeat(sizes, sizes)
    order = np.lexsort((tie_break, signature, turn, level))
    return order, np.union1d(_changes(signature[order]), _changes(turn[order]))


def _changes(values: np.ndarray) -> np.ndarray:
    """Positions at which (N,) values differ from the one before; the first is one of them."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def mix(values: np.ndarray) -> np.ndarray:
    """Hash of (N,) uint64 (splitmix64; Steele, Lea, Flood, Fast splittable pseudorandom number generators, 2014)."""
    values = values + GOLDEN_GAMMA
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Groups:
    """Rows of each class in each of G groups, as sparse triples sorted by group and class.

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
        return by_class + ALL_ROWS / self.rows * np.add.reduceat(self.counts, self.starts[:-1]) ** 2

    def signatures(self) -> np.ndarray:
        """(G,) uint64, equal where the class counts of two groups are."""
        entries = mix(mix(self.classes.astype(np.uint64)) + self.counts.astype(np.uint64))
        return np.add.reduceat(entries, self.starts[:-1])


def _deal_blocks(
    groups: _Groups, firsts: np.ndarray, sizes: np.ndarray, shares: np.ndarray, cover_first: bool
) -> np.ndarray:
    """How many groups of each block go to each split: (blocks, K). A block is `sizes[i]` groups like `firsts[i]`.

    The score of a split is how much it lacks of the group's classes, when each split ought to hold its share of all
    that has been dealt so far. Targets that grow with what is dealt keep small and large groups in proportion too.
    """
    share_of = shares.tolist()
    # Errors count in units of the sampling error of a class, whose variance grows with its rows.
    class_weight = (1 / np.maximum(1, groups.class_rows)).tolist()
    row_weight = ALL_ROWS / groups.rows
    dealt = [0] * len(groups.class_rows)  # rows of each class
    held = [[0] * len(shares) for _ in dealt]  # rows of each class in each split
    dealt_rows, held_rows = 0, [0] * len(shares)
    groups_left = np.bincount(groups.classes, minlength=len(dealt)).tolist()
    covered = [not cover_first] * len(dealt)
    empty = {split for split, share in enumerate(share_of) if share > 0}
    left = int(sizes.sum())
    classes, counts = groups.classes.tolist(), groups.counts.tolist()
    result = np.empty((len(sizes), len(shares)), np.int64)
    bounds = zip(groups.starts[firsts].tolist(), groups.starts[firsts + 1].tolist(), sizes.tolist(), strict=True)
    for block, (start, stop, size) in enumerate(bounds):
        entries = list(zip(classes[start:stop], counts[start:stop], strict=True))
        target, own = 0.0, [0.0] * len(shares)  # what the splits should hold together, and what each holds
        unit, group_rows, must_cover = 0.0, 0, False
        for label, count in entries:
            dealt[label] += size * count
            groups_left[label] -= size
            must_cover |= not covered[label] and not groups_left[label]
            weight = class_weight[label] * count
            unit += weight * count
            group_rows += count
            target += weight * dealt[label]
            own = [before + weight * more for before, more in zip(own, held[label], strict=True)]
        dealt_rows += size * group_rows
        weight = row_weight * group_rows
        unit += weight * group_rows
        target += weight * dealt_rows
        lacking = [
            share * target - before - weight * more
            for share, before, more in zip(share_of, own, held_rows, strict=True)
        ]
        left -= size
        fill = sorted(empty, key=lacking.__getitem__, reverse=True)[: len(empty) - left] if len(empty) > left else []
        forced = [0, *(split for split in fill if split)] if must_cover else fill
        numbers = _dealt(lacking, unit, size, forced, share_of)
        for split, number in enumerate(numbers):
            if number:
                empty.discard(split)
                held_rows[split] += number * group_rows
                for label, count in entries:
                    held[label][split] += number * count
                    covered[label] = covered[label] or split == 0
        result[block] = numbers
    return result


def _dealt(lacking: list[float], unit: float, size: int, forced: list[int], shares: list[float]) -> list[int]:
    """How many of `size` equal groups each split gets: where it lacks most first, as if they were dealt one by one.

    A group that goes to a split lowers what the split lacks by `unit`. Splits in `forced` get at least one.
    """
    numbers = [0] * len(lacking)
    for split in forced[:size]:
        numbers[split] = 1
    rest = size - sum(numbers)
    if rest == 0:
        return numbers
    wanted = [amount / unit - number for amount, number in zip(lacking, numbers, strict=True)]
    open_splits = [split for split, share in enumerate(shares) if share > 0]
    if rest == 1:
        numbers[max(open_splits, key=wanted.__getitem__)] += 1
        return numbers
    # Lower a common level until the amounts above it sum to `rest`, then round by largest remainders.
    open_splits.sort(key=wanted.__getitem__, reverse=True)
    total = 0.0
    for rank, split in enumerate(open_splits, 1):
        total += wanted[split]
        level = (total - rest) / rank
        if rank == len(open_splits) or wanted[open_splits[rank]] <= level:
            break
    amounts = {split: wanted[split] - level for split in open_splits[:rank]}
    whole = {split: int(amount) for split, amount in amounts.items()}
    by_remainder = sorted(amounts, key=lambda split: whole[split] - amounts[split])
    for split in by_remainder[: rest - sum(whole.values())]:
        whole[split] += 1
    for split, number in whole.items():
        numbers[split] += number
    return numbers
