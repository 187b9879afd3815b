"""Search for `batching.max_tokens=auto`: the largest token budget whose heaviest batch fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqclf.batching.deal import rows_of_batch
from seqclf.batching.steps import Limits
from seqclf.errors import InputError

AUTO = "auto"
FIRST_TOKENS = 2048  # of the first measurement, unless the longest sequence has more
GROWTH = 4  # of the tokens from one measurement to the next, at most
MARGIN = 1.1  # over a growth of memory in proportion to the tokens
USABLE = 0.8  # share of the free memory that a step may take


class TokenBudget(NamedTuple):
    """`tokens`: of a batch. `needed` by a step on the heaviest batch of this budget, and `free`: memory in bytes."""

    tokens: int
    needed: float
    free: int


def unlimited_budget(max_sequences: int | None, costs: np.ndarray) -> int:
    """Return the tokens of a batch that is limited by its rows alone, the highest budget that can matter.

    `costs`: (N,) lengths, rounded up to the bucket boundaries if there are any. Raises InputError without a limit of
    rows.
    """
    if max_sequences is None:
        raise InputError(
            f"batching.max_tokens={AUTO}",
            "needs a limit of rows, as free memory alone would decide how the model learns",
            "set batching.max_sequences=N",
        )
    return max_sequences * max(1, int(costs.max(initial=1)))


def search_budget(costs: np.ndarray, limits: Limits, measure: Callable[[np.ndarray], float], free: int) -> TokenBudget:
    """Return the largest budget up to `limits.max_tokens` whose heaviest batches take at most 80 % of the free memory.

    The search goes upward from small batches, because a batch that is far too large may end the process instead of
    raising an error. Memory is taken to grow at most in proportion to the tokens. The budget itself was measured.

    Args:
        costs: (N,) integers ≥ 1, lengths of all sequences in tokens, rounded up to the bucket boundaries.
        limits: limits of a batch.
        measure: function from the rows of a batch to the bytes that a training step on it needs, inf if it fails.
        free: bytes that are free.

    Raises InputError if a batch of the longest sequence alone does not fit.
    """
    longest = int(costs.max())
    usable, best = USABLE * free, None
    tokens = min(limits.max_tokens, max(longest, FIRST_TOKENS))
    while True:
        batches = heaviest_batches(costs, limits._replace(max_tokens=tokens))
        needed = max(measure(rows) for rows in batches)
        if needed > usable:
            if best is not None:
                return best
            if tokens <= longest:
                raise _too_long(longest, needed, free)
            tokens = max(longest, tokens // GROWTH)
            continue
        best = TokenBudget(tokens, needed, free)
        following = min(limits.max_tokens, int(tokens * min(GROWTH, usable / (needed * MARGIN))))
        if (following < tokens * MARGIN and following < limits.max_tokens) or tokens == limits.max_tokens:
            return best
        tokens = following


def heaviest_batches(costs: np.ndarray, limits: Limits) -> list[np.ndarray]:
    """Return the rows of the batches that may need the most memory in any epoch: one or two.

    They are the batch with the most tokens, and that of the longest rows, as the memory of attention grows with the
    square of the length.

    >>> limits = Limits(max_tokens=12, max_rows=4, multiple_of=1, overhead=None)
    >>> [rows.tolist() for rows in heaviest_batches(np.array([2, 3, 3, 3, 7]), limits)]  # 4 * 3 and 1 * 7 tokens
    [[1, 2, 3, 0], [4]]
    """
    order = np.argsort(-costs, kind="stable")
    descending = costs[order]
    starts = np.flatnonzero(np.diff(descending, prepend=descending[0] + 1))  # the first row of each length
    sizes = []
    for start in starts.tolist():
        count = rows_of_batch(int(descending[start]), limits.max_tokens, limits.max_rows, limits.multiple_of)
        sizes.append(min(count, len(costs) - start))
    most = int((descending[starts] * sizes).argmax())
    return [order[starts[index] : starts[index] + sizes[index]] for index in sorted({most, 0}, reverse=True)]


def _too_long(longest: int, needed: float, free: int) -> InputError:
    takes = "does not fit" if np.isinf(needed) else f"takes {needed / 1e9:.2f} GB"
    return InputError(
        "batching.max_tokens=auto",
        f"a step on the longest sequence alone, of {longest:,} tokens, {takes}, and {free / 1e9:.2f} GB are free",
        "set data.max_length=N, or make the model smaller",
    )
