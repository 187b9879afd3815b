"""First level of the plan: cut a pool of sorted rows into steps. A step fills one batch for each planned rank."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.batching.deal import deal, rows_of_batch


class Limits(NamedTuple):
    """Limits of a batch.

    `max_tokens`: maximum number of tokens, padding included; a single row may be longer. `max_rows`: maximum number of
    rows. `overhead`: fixed cost of a batch, in rows per time step; None if batches never end early to save padding.
    """

    max_tokens: int
    max_rows: int
    overhead: float | None


def step_bounds(descending: np.ndarray, limits: Limits, ranks: int, last: bool) -> list[int]:
    """Cut rows, sorted by descending length, into consecutive steps of `ranks` batches, and return their bounds.

    With several ranks, a step ends early if its next rows are too short: a batch of `limits.max_rows` of them would
    cost less than the mean batch of the step. Batches of longer rows therefore have fewer rows, and all ranks get equal
    costs.

    `descending`: (n,) integers ≥ 1, lengths of the rows in tokens. `last`: True for the last pool of the epoch, where
    the rows that do not fill a step form a smaller one; otherwise the bounds leave them out, for the next pool.
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


def deal_step(descending: np.ndarray, limits: Limits, ranks: int, world_size: int) -> np.ndarray:
    """Return the (world_size + 1,) bounds of the rows of each running rank of a step planned for `ranks` ranks.

    With fewer running ranks, the limits of a batch are raised in proportion.
    """
    growth = max(ranks, world_size)
    return deal(
        descending,
        world_size,
        max_tokens=-(-limits.max_tokens * growth // world_size),
        max_rows=-(-limits.max_rows * growth // world_size),
    )


def _step_end(descending: np.ndarray, tokens: np.ndarray, start: int, limits: Limits, ranks: int) -> int:
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


def _middle(descending: np.ndarray, tokens: np.ndarray, bounds: list[int], limits: Limits, ranks: int) -> int:
    """Return the bound between the last two steps that gives both about the same number of tokens.

    A last step of a few rows could not be divided into parts of equal cost.
    """
    start, full, end = bounds
    middle = int(np.searchsorted(tokens, (tokens[start] + tokens[end]) // 2))
    middle = max(start + ranks, min(middle, end - ranks))
    while middle < full and not _fits(descending[middle:end], limits, ranks):
        middle = (middle + full + 1) // 2
    return min(middle, full)


def _fits(descending: np.ndarray, limits: Limits, ranks: int) -> bool:
    """Return True if `ranks` batches within the limits can hold all rows."""
    end = 0
    for _ in range(ranks):
        if end < len(descending):
            end += rows_of_batch(int(descending[end]), limits.max_tokens, limits.max_rows)
    return end >= len(descending)


def _batch_end(descending: np.ndarray, start: int, limits: Limits) -> int:
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
