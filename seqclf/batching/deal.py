"""Second level of the plan: divide the rows of one step among the running ranks, so that all ranks get equal costs."""

from __future__ import annotations

import numpy as np

TOLERANCE = 512  # the search stops when the highest cost is at most 1/512 above the lowest possible cost


def deal(descending: np.ndarray, ranks: int, *, max_tokens: int, max_rows: int) -> np.ndarray:
    """Divide rows, sorted by descending length, into contiguous blocks of rows, one block for each rank.

    A block costs `count * longest` tokens, padding included: its number of rows times the length of its longest row.
    The blocks are chosen so that the highest cost is as low as possible. A block exceeds `max_tokens` or `max_rows`
    only if the rows do not fit into these limits, which happens if fewer ranks are running than planned.

    Args:
        descending: (n,) integers ≥ 1, lengths of the rows in tokens.
        ranks: number of blocks.
        max_tokens: maximum cost of a block. A block with a single row may cost more.
        max_rows: maximum number of rows of a block.

    Returns:
        (ranks + 1,) int64, bounds of the blocks. With fewer rows than ranks, the last blocks are empty.

    >>> deal(np.array([9, 5, 4, 4, 3]), 2, max_tokens=20, max_rows=8).tolist()  # 2 * 9 and 3 * 4 tokens
    [0, 2, 5]
    """
    lengths = descending.tolist()
    if ranks == 1 or not lengths:
        return np.array([0] + [len(lengths)] * ranks)
    max_rows = max(max_rows, -(-len(lengths) // ranks))
    highest = min(max_tokens, lengths[0] * max_rows)  # a longer row is a block of its own
    parts = _parts(lengths, ranks, highest, max_rows)
    if parts is None:
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
    """Return the bounds of blocks that cost at most `cost`, or None if such blocks cannot hold all rows.

    Each block takes as many rows as fit, but leaves a row for each block after it.
    """
    count = len(lengths)
    bounds, start = [0], 0
    for parts_left in range(ranks - 1, -1, -1):
        if start < count:
            fitting = rows_of_batch(lengths[start], cost, max_rows)
            start += max(1, min(fitting, count - start - parts_left))
        bounds.append(start)
    return bounds if start == count else None
