"""Bounds of steps in a pool of sorted rows, and of the rows of each rank in a step, which make costs equal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class BatchLimits(NamedTuple):
    """Limits of a batch.

    `max_tokens`: maximum number of tokens, padding included; a single row may be longer. `max_rows`: maximum number of
    rows. `overhead`: fixed cost of a batch, in rows per time step; None if batches never end early to save padding.
    """

    max_tokens: int
    max_rows: int
    overhead: float | None


def step_bounds(descending: np.ndarray, limits: BatchLimits, ranks: int, last: bool) -> list[int]:
    """Cut rows, sorted by descending length, into consecutive steps of `ranks` batches, and return their bounds.

    With several ranks, a step ends before rows so short that a batch of `limits.max_rows` of them would cost less than
    its mean batch, which keeps costs equal. `descending`: (n,) lengths ≥ 1 in tokens. `last`: True for the last pool,
    where the rows that do not fill a step form a smaller one; otherwise they are left for the next pool.
    """
    bounds = [0]
    if ranks == 1:
        while bounds[-1] < len(descending):
            bounds.append(_batch_end(descending, bounds[-1], limits))
        return bounds
    tokens = np.concatenate([[0], np.cumsum(descending, dtype=np.int64)])
    while bounds[-1] < len(descending):
        end = _step_end(descending, tokens, bounds[-1], limits, ranks)
        if end == len(descending) and not last:
            break
        bounds.append(end)
    if last and len(bounds) > 2:
        bounds[-2] = _middle(descending, tokens, bounds[-3:], limits, ranks)
    return bounds


def deal_step(descending: np.ndarray, limits: BatchLimits, ranks: int, world_size: int) -> np.ndarray:
    """Return the (world_size + 1,) bounds of the rows of each running rank of a step planned for `ranks` ranks."""
    growth = max(ranks, world_size)  # fewer running ranks raise the limits in proportion
    return deal(
        descending,
        world_size,
        max_tokens=-(-limits.max_tokens * growth // world_size),
        max_rows=-(-limits.max_rows * growth // world_size),
    )


def _step_end(descending: np.ndarray, tokens: np.ndarray, start: int, limits: BatchLimits, ranks: int) -> int:
    fitting = start
    for _ in range(ranks):
        if fitting < len(descending):
            fitting = _batch_end(descending, fitting, limits)
    low, high = min(start + ranks, fitting), fitting
    while low < high:  # binary search: the last end where a batch of the shortest rows reaches the mean cost
        middle = (low + high + 1) // 2
        reached = min(limits.max_tokens, limits.max_rows * int(descending[middle - 1]))
        if tokens[middle] - tokens[start] <= ranks * reached:
            low = middle
        else:
            high = middle - 1
    return low


def _middle(descending: np.ndarray, tokens: np.ndarray, bounds: list[int], limits: BatchLimits, ranks: int) -> int:
    """Return the bound that gives the last two steps equal tokens, because few rows have no parts of equal cost."""
    start, full, end = bounds
    middle = int(np.searchsorted(tokens, (tokens[start] + tokens[end]) // 2))
    middle = max(start + ranks, min(middle, end - ranks))
    while middle < full and not _fits(descending[middle:end], limits, ranks):
        middle = (middle + full + 1) // 2
    return min(middle, full)


def _fits(descending: np.ndarray, limits: BatchLimits, ranks: int) -> bool:
    """Return True if `ranks` batches within the limits can hold all rows."""
    end = 0
    for _ in range(ranks):
        if end < len(descending):
            end += rows_of_batch(int(descending[end]), limits.max_tokens, limits.max_rows)
    return end >= len(descending)


def _batch_end(descending: np.ndarray, start: int, limits: BatchLimits) -> int:
    count = rows_of_batch(int(descending[start]), limits.max_tokens, limits.max_rows)
    if limits.overhead is not None:
        count = _cheapest(descending[start : start + count], limits.overhead)
    return min(start + count, len(descending))


def _cheapest(descending: np.ndarray, overhead: float) -> int:
    """Return the rows in the first of two batches of the lowest total cost, each longest * (count + overhead)."""
    longest, shortest = int(descending[0]), int(descending[-1])
    if (longest - shortest) * (len(descending) - 1) <= overhead * shortest:  # no cut of the rows lowers the cost
        return len(descending)
    counts = np.arange(1, len(descending))
    saved = (descending[0] - descending[counts]) * (len(descending) - counts) - overhead * descending[counts]
    return int(counts[saved.argmax()]) if len(counts) and saved.max() > 0 else len(descending)


TOLERANCE = 512  # the search stops when the highest cost is at most 1/512 above the lowest possible cost


def deal(descending: np.ndarray, ranks: int, *, max_tokens: int, max_rows: int) -> np.ndarray:
    """Divide rows, sorted by descending length, into contiguous blocks, and return their (ranks + 1,) int64 bounds.

    The highest cost of a block, `count * longest` tokens, is as low as possible. A block exceeds `max_tokens` or
    `max_rows` only if the rows do not fit, as with fewer ranks than planned. With fewer rows than ranks, the last
    blocks are empty. `descending`: (n,) lengths ≥ 1 in tokens.

    >>> deal(np.array([9, 5, 4, 4, 3]), 2, max_tokens=20, max_rows=8).tolist()  # 2 * 9 and 3 * 4 tokens
    [0, 2, 5]
    """
    lengths = descending.tolist()
    if ranks == 1 or not lengths:
        return np.array([0] + [len(lengths)] * ranks)
    max_rows = max(max_rows, -(-len(lengths) // ranks))
    highest = min(max_tokens, lengths[0] * max_rows)  # a longer row is a block of its own
    if (parts := _parts(lengths, ranks, highest, max_rows)) is None:
        highest = lengths[0] * max_rows
        parts = _parts(lengths, ranks, highest, max_rows)
    assert parts is not None  # at this cost, `ranks` blocks of `max_rows` rows hold all rows
    lowest = max(lengths[0], -(-sum(lengths) // ranks)) - 1  # below the cost of any possible division
    while highest - lowest > max(1, highest // TOLERANCE):
        middle = (lowest + highest) // 2
        lower = _parts(lengths, ranks, middle, max_rows)
        if lower is None:
            lowest = middle
        else:
            parts, highest = lower, middle
    return np.array(parts)


def rows_of_batch(longest: int, max_tokens: int, max_rows: int) -> int:
    """Return the largest number of rows in a batch whose longest row has `longest` tokens."""
    return max(1, min(max_rows, max_tokens // longest))


def _parts(lengths: list[int], ranks: int, cost: int, max_rows: int) -> list[int] | None:
    """Return the bounds of blocks that cost at most `cost` and leave a row for each later one, None without any."""
    count = len(lengths)
    bounds, start = [0], 0
    for parts_left in range(ranks - 1, -1, -1):
        if start < count:
            fitting = rows_of_batch(lengths[start], cost, max_rows)
            start += max(1, min(fitting, count - start - parts_left))
        bounds.append(start)
    return bounds if start == count else None
