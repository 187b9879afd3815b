"""Second level of the plan: deal the rows of one step to the ranks that are present, in parts of equal cost."""

from __future__ import annotations

import numpy as np

TOLERANCE = 512  # the search for the lowest cost stops within a 512th of it


def deal(descending: np.ndarray, ranks: int, *, max_tokens: int, max_rows: int, multiple_of: int = 1) -> np.ndarray:
    """Divide rows, sorted by descending lengths, into one consecutive part for each rank.

    The cost of a part is `count * longest` tokens, padding included. The parts are chosen so that the highest cost is
    as low as possible. The limits are those of the plan's batches. They are exceeded only where the rows do not fit
    otherwise, because fewer ranks are present than the step was planned for.

    Args:
        descending: (n,) integers ≥ 1, lengths in tokens.
        ranks: number of parts.
        max_tokens: highest cost of a part. A single row may cost more.
        max_rows: highest number of rows of a part.
        multiple_of: the numbers of rows of the parts are multiples of this where each part can hold as many.

    Returns:
        (ranks + 1,) int64, bounds of the parts. Where there are fewer rows than ranks, the last parts are empty.

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
    assert parts is not None  # `ranks` parts of `max_rows` rows hold all rows at the last cost
    smallest = lengths[0] * multiple_of
    if smallest > highest or len(lengths) < ranks * multiple_of:
        smallest = lengths[0]
    lowest = max(smallest, -(-sum(lengths) // ranks)) - 1  # a cost that no parts stay within
    while highest - lowest > max(1, highest // TOLERANCE):
        middle = (lowest + highest) // 2
        lower = _parts(lengths, ranks, middle, max_rows, multiple_of)
        if lower is None:
            lowest = middle
        else:
            parts, highest = lower, middle
    return np.array(parts)


def highest_cost(descending: np.ndarray, bounds: np.ndarray) -> int:
    """Return the cost of the most expensive part in tokens, padding included."""
    counts = np.diff(bounds)
    filled = counts > 0
    return int((counts[filled] * descending[bounds[:-1][filled]]).max(initial=0))


def rows_of_batch(longest: int, max_tokens: int, max_rows: int, multiple_of: int) -> int:
    """Return the number of rows in a batch whose longest row is known."""
    count = max(1, min(max_rows, max_tokens // longest))
    return count - count % multiple_of if count > multiple_of else count


def _parts(lengths: list[int], ranks: int, cost: int, max_rows: int, multiple_of: int) -> list[int] | None:
    """Return the bounds of parts that cost at most `cost`. None if the parts do not hold all rows.

    Each part takes as many rows as it can, but leaves enough rows for the parts after it.
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
