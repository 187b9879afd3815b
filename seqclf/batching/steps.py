"""First level of the plan: cut a pool of sorted rows into steps that fill the batches of all planned ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.batching.deal import deal, highest_cost, rows_of_batch


class Limits(NamedTuple):
    """Limits of a batch.

    `max_tokens`: tokens, padding included; a single row may be longer. `max_rows`: rows. `multiple_of`: the number of
    rows is a multiple of this where the batch can hold as many. `overhead`: cost of one more batch in rows per time
    step, None to never end a batch early.
    """

    max_tokens: int
    max_rows: int
    multiple_of: int
    overhead: float | None


def step_bounds(descending: np.ndarray, limits: Limits, ranks: int, last: bool) -> list[int]:
    """Cut rows, sorted by descending lengths, into consecutive steps of `ranks` batches each.

    With several ranks a step ends before its rows become so short that a batch of `limits.max_rows` of them costs less
    than the mean batch of the step. Longer rows then have smaller batches, and all ranks get equal costs.

    Args:
        descending: (n,) integers ≥ 1, lengths in tokens.
        limits: limits of a batch.
        ranks: number of ranks that the steps are planned for.
        last: True if no pool follows. The rows that fill no step then make a smaller one. Otherwise the bounds leave
            them out, and they belong to the next pool.

    Returns:
        Bounds of the steps. The first row of a step is its longest.
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


def step_cost(descending: np.ndarray, limits: Limits, ranks: int) -> int:
    """Return the cost of the most expensive batch of a step in tokens, padding included."""
    return highest_cost(descending, deal_step(descending, limits, ranks, ranks))


def deal_step(descending: np.ndarray, limits: Limits, ranks: int, world_size: int) -> np.ndarray:
    """Return the bounds (world_size + 1,) of the parts of a step that was planned for `ranks` ranks.

    Where fewer ranks are present, their limits grow in proportion.
    """
    growth = max(ranks, world_size)
    return deal(
        descending,
        world_size,
        max_tokens=-(-limits.max_tokens * growth // world_size),
        max_rows=-(-limits.max_rows * growth // world_size),
        multiple_of=limits.multiple_of,
    )


def _step_end(descending: np.ndarray, tokens: np.ndarray, start: int, limits: Limits, ranks: int) -> int:
    """Return the end of the step that begins at `start`."""
    fitting = start
    for _ in range(ranks):
        if fitting < len(descending):
            fitting = _batch_end(descending, fitting, limits)
    low, high = min(start + ranks, fitting), fitting
    while low < high:  # the last end at which the shortest rows can still fill a batch of mean cost
        middle = (low + high + 1) // 2
        reached = min(limits.max_tokens, limits.max_rows * int(descending[middle - 1]))
        if tokens[middle] - tokens[start] <= ranks * reached:
            low = middle
        else:
            high = middle - 1
    spare = (low - start) % limits.multiple_of
    return low - spare if low < len(descending) and low - start - spare >= ranks * limits.multiple_of else low


def _middle(descending: np.ndarray, tokens: np.ndarray, bounds: list[int], limits: Limits, ranks: int) -> int:
    """Return the bound between the last two steps at which both have as many tokens.

    The last step has the rows that are left. Few rows could not be dealt in parts of equal cost.
    """
    start, full, end = bounds
    middle = int(np.searchsorted(tokens, (tokens[start] + tokens[end]) // 2))
    middle = max(start + ranks, min(middle, end - ranks))
    while middle < full and not _fits(descending[middle:end], limits, ranks):
        middle = (middle + full + 1) // 2
    return min(middle, full)


def _fits(descending: np.ndarray, limits: Limits, ranks: int) -> bool:
    """Return True if `ranks` batches within the limits hold all rows."""
    end = 0
    for _ in range(ranks):
        if end < len(descending):
            end += rows_of_batch(int(descending[end]), limits.max_tokens, limits.max_rows, limits.multiple_of)
    return end >= len(descending)


def _batch_end(descending: np.ndarray, start: int, limits: Limits) -> int:
    count = rows_of_batch(int(descending[start]), limits.max_tokens, limits.max_rows, limits.multiple_of)
    if limits.overhead is not None:
        count = _cheapest(descending[start : start + count], limits.multiple_of, limits.overhead)
    return min(start + count, len(descending))


def _cheapest(descending: np.ndarray, multiple_of: int, overhead: float) -> int:
    """Return the number of these rows to take so that they and the rest, as a second batch, cost the least together.

    A batch costs longest * (count + overhead).
    """
    longest, shortest = int(descending[0]), int(descending[-1])
    if (longest - shortest) * (len(descending) - 1) <= overhead * shortest:  # no end saves as much as it costs
        return len(descending)
    counts = np.arange(multiple_of, len(descending), multiple_of)
    saved = (descending[0] - descending[counts]) * (len(descending) - counts) - overhead * descending[counts]
    return int(counts[saved.argmax()]) if len(counts) and saved.max() > 0 else len(descending)
