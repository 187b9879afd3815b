"""Find the largest token budget whose heaviest batch fits into memory, for `batching.max_tokens=auto`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqclf.batching.deal import rows_of_batch
from seqclf.batching.steps import Limits
from seqclf.errors import InputError

AUTO = "auto"
FIRST_TOKENS = 2048  # tokens of the first measured batch, unless the longest sequence has more tokens
GROWTH = 4  # each measured batch has at most 4 times the tokens of the previous measured batch
MARGIN = 1.1  # safety factor for predicted memory, which is assumed to be in proportion to the tokens
USABLE = 0.8  # fraction of the free memory that a training step may take


class TokenBudget(NamedTuple):
    """`tokens`: maximum number of tokens in a batch.

    `needed`: bytes of memory for a training step on the heaviest batch. `free`: bytes of free memory.
    """

    tokens: int
    needed: float
    free: int


def unlimited_budget(max_sequences: int | None, costs: np.ndarray) -> int:
    """Return the most tokens that a batch can have if only its number of rows is limited.

    A token budget above the returned number would have no effect. `costs`: (N,) lengths. Raises InputError if
    `max_sequences` is None.
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

    The search starts with small batches. A batch that is far too large may end the process instead of raising an error.
    The search assumes that doubling the tokens at most doubles the memory. The returned budget has always been
    measured, never only predicted.

    Args:
        costs: (N,) integers ≥ 1, lengths of all sequences in tokens.
        limits: limits of each batch.
        measure: function that gets the rows of a batch and returns the bytes of memory for a training step; inf if the
            step fails.
        free: free memory in bytes.

    Raises InputError if a batch with only the longest sequence does not fit.
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
    """Return the rows of the one or two batches that may need the most memory in any epoch.

    The heaviest batch has either the most tokens or the longest rows, because the memory of attention grows with the
    square of the length.

    >>> limits = Limits(max_tokens=12, max_rows=4, overhead=None)
    >>> [rows.tolist() for rows in heaviest_batches(np.array([2, 3, 3, 3, 7]), limits)]  # 4 * 3 and 1 * 7 tokens
    [[1, 2, 3, 0], [4]]
    """
    order = np.argsort(-costs, kind="stable")
    descending = costs[order]
    starts = np.flatnonzero(np.diff(descending, prepend=descending[0] + 1))  # position of the first row of each length
    sizes = []
    for start in starts.tolist():
        count = rows_of_batch(int(descending[start]), limits.max_tokens, limits.max_rows)
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
