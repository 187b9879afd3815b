"""Second level of the plan: divide the rows of one step among the running ranks, so that all ranks get equal costs."""

from __future__ import annotations

import numpy as np

TOLERANCE = 512  # the search stops when the highest cost is at most 1/512 above the lowest possible cost


def deal(descending: np.ndarray, ranks: int, *, max_tokens: int, max_rows: int, multiple_of: int = 1) -> np.ndarray:
    """Divide rows, sorted by descending length, into contiguous blocks of rows, one block for each rank.

    A block costs `count * longest` tokens, padding included: its number of rows times the length of its longest row.
    The blocks are chosen so that the highest cost is as low as possible. A block exceeds `max_tokens` or `max_rows`
    only if the rows do not fit into these limits, which happens if fewer ranks are running than planned.

    Args:
        descending: (n,) integers ≥ 1, lengths of the rows in tokens.
        ranks: number of blocks.
        max_tokens: maximum cost of a block. A block with a single row may cost more.
        max_rows: maximum number of rows of a block.
        multiple_of: the number of rows of each block is a multiple of `multiple_of`, if there are enough rows.

    Returns:
        (ranks + 1,) int64, bounds of the blocks. With fewer rows than ranks, the last blocks are empty.

    >>> deal(np.array([9, 5, 4, 4, 3]), 2, max_tokens=20, max_rows=8).tolist()  # 2 * 9 and 3 * 4 tokens
    [0, 2, 5]
    """
    lengths = descending.tolist()
    if ranks == 1 or not lengths:
        return np.array([0] + [len(lengths)] * ranks)
    max_rows = max(max_rows, -(-len(lengths) // ranks))
    highest = min(max(max_tokens, lengths[0]), lengths[0] * max_rows)
    parts = _parts(lengths, ranks, highest, max_rows, multiple_of)
    if parts is None:
        highest = lengths[0] * max_rows
        parts = _parts(lengths, ranks, highest, max_rows, multiple_of)
    if parts is None:
        multiple_of = 1
        parts = _parts(lengths, ranks, highest, max_rows, multiple_of)
    assert parts is not None  # at this cost, `ranks` blocks of `max_rows` rows hold all rows
    smallest = lengths[0] * multiple_of
    if smallest > highest or len(lengths) < ranks * multiple_of:
        smallest = lengths[0]
    lowest = max(smallest, -(-sum(lengths) // ranks)) - 1  # below the cost of any possible division
    while highest - lowest > max(1, highest // TOLERANCE):
        middle = (lowest + highest) // 2
        lower = _parts(lengths, ranks, middle, max_rows, multiple_of)
        if lower is None:
            lowest = middle
        else:
            parts, highest = lower, middle
    return np.array(parts)


def highest_cost(descending: np.ndarray, bounds: np.ndarray) -> int:
    """Return the cost of the most expensive block in tokens, padding included."""
    counts = np.diff(bounds)
    filled = counts > 0
    return int((counts[filled] * descending[bounds[:-1][filled]]).max(initial=0))


def rows_of_batch(longest: int, max_tokens: int, max_rows: int, multiple_of: int) -> int:
    """Return the largest number of rows in a batch whose longest row has `longest` tokens."""
    count = max(1, min(max_rows, max_tokens // longest))
    return count - count % multiple_of if count > multiple_of else count


def _parts(lengths: list[int], ranks: int, cost: int, max_rows: int, multiple_of: int) -> list[int] | None:
    """Return the bounds of blocks that cost at most `cost`, or None if such blocks cannot hold all rows.

    Each block takes as many rows as fit, but leaves enough rows for the blocks after it.
    """
    count = len(lengths)
    reserve = multiple_of if count >= ranks * multiple_of else 1
    bounds, start = [0], 0
    for parts_left in range(ranks - 1, -1, -1):
        if start < count:
            fitting = rows_of_batch(lengths[start], cost, max_rows, multiple_of)
            start += max(1, min(fitting, count - start - parts_left * reserve))
        bounds.append(start)
    return bounds if start == count else None
