"""Counts of the n-grams of many sequences, as a sparse matrix, in a vocabulary that holds each n-gram exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

Size = TypeVar("Size", bound=Any)  # an int, or a tensor of ints


@dataclass(frozen=True)
class Stream:
    """Ids of N sequences, end to end: `ids` (S,) int64, each in [0, size). `offsets`: (N + 1,) bounds of the rows.

    `longest`: largest n of its n-grams. With n of 2 or more, each row gets a mark before its first token and another
    one after its last token.
    """

    ids: np.ndarray
    offsets: np.ndarray
    size: int
    longest: int


@dataclass(frozen=True)
class Level:
    """The n-grams of one n, numbered from 1: gram i + 1 is the (n-1)-gram `prefixes[i]` and then the token `tokens[i]`.

    `prefixes`: (V,) numbers in the level before, 0 for n = 1. `tokens`: (V,) ids. Sorted by prefix, then by token.
    """

    prefixes: np.ndarray
    tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.prefixes)


@dataclass(frozen=True)
class Vocabulary:
    """The n-grams of a stream by n. `size`: ids of the stream without the marks."""

    size: int
    levels: list[Level]

    def __len__(self) -> int:
        return sum(map(len, self.levels))

    def sizes(self) -> np.ndarray:
        """Return n of each n-gram (V,)."""
        return np.repeat(np.arange(1, len(self.levels) + 1), [len(level) for level in self.levels])


def pruned(vocabulary: Vocabulary, is_kept: np.ndarray) -> tuple[Vocabulary, np.ndarray]:
    """Return the vocabulary without the n-grams that are not kept, and a mask (V,) of those that it still has.

    `is_kept`: (V,) booleans. Marks stay, and so does each n-gram that a longer one begins with.
    """
    bounds = np.cumsum([0, *map(len, vocabulary.levels)])
    stays = is_kept.copy()
    for n in range(len(vocabulary.levels) - 1, -1, -1):
        level, own = vocabulary.levels[n], stays[bounds[n] : bounds[n + 1]]
        if n == 0:
            own |= level.tokens >= vocabulary.size
        else:
            stays[bounds[n - 1] + level.prefixes[own] - 1] = True
    levels: list[Level] = []
    before = np.zeros(1, np.int64)
    for n, level in enumerate(vocabulary.levels):
        own = stays[bounds[n] : bounds[n + 1]]
        levels.append(Level(before[level.prefixes[own]], level.tokens[own]))
        before = np.append(0, np.where(own, np.cumsum(own), 0))
    return Vocabulary(vocabulary.size, levels), stays


def begin_mark(size: Size) -> Size:
    """Return the id of the mark before the first token. The next id is the mark after the last token."""
    return size


def count_new(stream: Stream, most: int) -> tuple[Vocabulary, Any]:
    """Return the vocabulary of a stream with at most `most` n-grams of each n, and the counts (N, V) of its n-grams.

    Where there are more n-grams than that, those in the fewest rows are left out. All rows count alike.
    """
    ids, rows, ends = _marked(stream)
    numbers = np.zeros(len(ids), np.int64)
    levels, columns = [], []
    for n in range(1, stream.longest + 1):
        at, keys = _keys(ids, ends, numbers, n, stream.size)
        distinct, found = np.unique(keys, return_inverse=True)
        kept = _most_frequent(found, rows[at], len(distinct), most)
        number_of = np.where(kept, np.cumsum(kept), 0)
        base = _base(stream.size)
        levels.append(Level(distinct[kept] // base, distinct[kept] % base))
        numbers = np.zeros(len(ids), np.int64)
        numbers[at] = number_of[found]
        columns.append(numbers)
    vocabulary = Vocabulary(stream.size, levels)
    return vocabulary, _matrix(columns, ids, rows, vocabulary, len(stream.offsets) - 1)


def _base(size: int) -> int:
    return size + 2  # with both marks


def _marked(stream: Stream) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids with marks, the row of each id, and the end of its row, each (S',)."""
    lengths = np.diff(stream.offsets)
    if stream.longest == 1:
        return stream.ids, np.repeat(np.arange(len(lengths)), lengths), np.repeat(stream.offsets[1:], lengths)
    bounds = stream.offsets + 2 * np.arange(len(stream.offsets))
    ids = np.empty(bounds[-1], np.int64)
    is_token = np.ones(len(ids), bool)
    is_token[bounds[:-1]] = is_token[bounds[1:] - 1] = False
    ids[is_token] = stream.ids
    ids[bounds[:-1]] = begin_mark(stream.size)
    ids[bounds[1:] - 1] = begin_mark(stream.size) + 1
    return ids, np.repeat(np.arange(len(lengths)), lengths + 2), np.repeat(bounds[1:], lengths + 2)


def _keys(ids: np.ndarray, ends: np.ndarray, numbers: np.ndarray, n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of n-grams with a known prefix, and their keys: prefix and last token as one number."""
    if n == 1:
        return np.arange(len(ids)), ids
    at = np.flatnonzero((numbers > 0) & (np.arange(len(ids)) + n - 1 < ends))
    return at, numbers[at] * _base(size) + ids[at + n - 1]


def _most_frequent(found: np.ndarray, rows: np.ndarray, grams: int, most: int) -> np.ndarray:
    """Return a mask (grams,) of the n-grams in the most rows, at most `most`. Equal ones stay or go together."""
    if grams <= most:
        return np.ones(grams, bool)
    rows_of = np.bincount(np.unique(found * (int(rows.max()) + 1) + rows) // (int(rows.max()) + 1), minlength=grams)
    threshold = np.partition(rows_of, grams - most - 1)[grams - most - 1] + 1
    return rows_of >= threshold


def _matrix(columns: list[np.ndarray], ids: np.ndarray, rows: np.ndarray, vocabulary: Vocabulary, count: int) -> Any:
    from scipy import sparse

    first = np.cumsum([0, *map(len, vocabulary.levels)])
    parts = []
    for start, numbers in zip(first, columns, strict=False):
        known = numbers > 0
        if start == 0:
            known &= ids < vocabulary.size  # a mark alone tells nothing, it only begins and ends n-grams
        parts.append((rows[known], numbers[known] - 1 + start))
    at, gram = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    ones = np.ones(len(at), np.float64)
    return sparse.coo_matrix((ones, (at, gram)), (count, len(vocabulary))).tocsr()
