"""Plan of an epoch: a pure function divides rows into batches within a token budget, by their lengths.

Any process computes the rows of any step from (seed, epoch) alone, so ranks need no communication to divide an epoch,
and a run can resume inside one.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seqclf.batching.step_bounds import BatchLimits, deal_step, step_bounds
from seqclf.errors import InputError


def plan_batches(
    lengths: np.ndarray,
    *,
    max_tokens: int,
    max_sequences: int | None,
    pool_batches: int | None,
    seed: int,
    epoch: int,
    overhead: float | None = None,
    labels: np.ndarray | None = None,
    balance: float = 0.0,
    world_size: int = 1,
    rank: int = 0,
    ranks: int | None = None,
) -> list[np.ndarray]:
    """Return the batches of one epoch for one rank. Each batch is an array of row indices into `lengths`.

    `lengths`: (N,) int64, each at least 1.

    **Size.** A batch costs `count * longest` tokens, at most `max_tokens` unless one row is longer, and has at most
    `max_sequences` rows. With `overhead`, it ends early if another batch costs less than the padding (see `_cheapest`).

    **Order.** Rows are shuffled by (`seed`, `epoch`), cut into pools of about `pool_batches` batches per planned rank,
    and sorted by length in each, so that a batch has rows of similar length in a random order of batches.
    `pool_batches=None` sorts all rows, longest first (for evaluation and prediction).

    **Rows.** With `balance` 0, an epoch reads every row once. Above 0, it draws N rows so that the fraction of each
    class in `labels` is proportional to (class size) ** (1 - `balance`), and all rows of a class equally often.

    **Ranks.** A step fills one batch for each of the `ranks` planned ranks, by default `world_size`. The running ranks
    divide its rows, which do not depend on `world_size`, at equal costs, and all have the same number of steps. With
    fewer rows than ranks, the last ones get an empty batch. Fewer running than planned ranks exceed the limits.

    >>> plan = plan_batches(
    ...     np.array([2, 9, 3, 8, 1]), max_tokens=18, max_sequences=None, pool_batches=None, seed=0, epoch=0
    ... )
    >>> [rows.tolist() for rows in plan]  # 2 * 9 and 3 * 3 tokens
    [[1, 3], [2, 0, 4]]
    """
    if max_tokens < 1 or (max_sequences is not None and max_sequences < 1):
        raise InputError(
            f"batching.max_tokens={max_tokens}, batching.max_sequences={max_sequences}", "must be at least 1"
        )
    costs = np.asarray(lengths)
    limits = BatchLimits(max_tokens, max_sequences or max(1, len(costs)), overhead)
    planned = ranks or world_size
    generator = np.random.default_rng([seed, epoch])
    if pool_batches is None:
        order, size = np.arange(len(costs)), max(1, len(costs))
    else:
        order = _draw_rows(generator, len(costs), labels, balance)
        mean = max(1.0, _mean(costs, order, balance)) if len(order) else 1.0
        size = max(1, int(pool_batches * planned * min(limits.max_rows, max(1, max_tokens // mean))))
    batches: list[np.ndarray] = []
    left = order[:0].astype(np.int64)  # rows of the previous pool that did not fill a whole step
    for start in range(0, len(order), size):
        rows = np.concatenate([left, order[start : start + size]])
        rows = rows[_sort_descending(costs[rows])]
        descending = costs[rows]
        bounds = step_bounds(descending, limits, planned, last=start + size >= len(order))
        for first, end in pairwise(bounds):
            part = slice(first, end)
            if world_size > 1:
                parts = first + deal_step(descending[part], limits, planned, world_size)
                part = slice(parts[rank], parts[rank + 1])
            # Copied for several ranks, because a view would keep the whole pool in memory.
            batches.append(rows[part] if world_size == 1 else rows[part].copy())
        left = rows[bounds[-1] :]
    if pool_batches is None:
        return batches
    return [batches[step] for step in generator.permutation(len(batches)).tolist()]


def _draw_rows(generator: np.random.Generator, count: int, labels: np.ndarray | None, balance: float) -> np.ndarray:
    if not balance or labels is None or not count:
        order = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
        generator.shuffle(order)  # the random order is the same for both integer types
        return order
    sizes = np.bincount(labels)
    shares = np.where(sizes > 0, sizes, 1.0) ** (1.0 - balance) * (sizes > 0)
    # Largest-remainder method: round the quotas to integers that add up to `count`.
    quotas = shares / shares.sum() * count
    counts = np.floor(quotas).astype(np.int64)
    counts[np.argsort(counts - quotas, kind="stable")[: count - counts.sum()]] += 1
    drawn = []
    for label in np.flatnonzero(counts).tolist():
        class_rows = np.flatnonzero(labels == label)
        rounds = -(-counts[label] // len(class_rows))
        drawn.append(np.concatenate([generator.permutation(class_rows) for _ in range(rounds)])[: counts[label]])
    return generator.permutation(np.concatenate(drawn))


def _mean(costs: np.ndarray, order: np.ndarray, balance: float) -> float:
    """Return the mean length of the rows of an epoch, a sum of integers, so that no order changes it."""
    return float(costs[order].mean() if balance else costs.mean())


def _sort_descending(lengths: np.ndarray) -> np.ndarray:
    below_longest = lengths.max(initial=0) - lengths
    if below_longest.max(initial=0) < 2**16:
        below_longest = below_longest.astype(np.uint16)  # NumPy sorts 16-bit integers several times as fast as others
    return np.argsort(below_longest, kind="stable")


def padding_efficiency(lengths: np.ndarray, batches: list[np.ndarray]) -> float:
    """Return the fraction of the tokens in all batches that are not padding."""
    computed = sum(len(rows) * int(lengths[rows].max(initial=0)) for rows in batches)
    return float(sum(int(lengths[rows].sum()) for rows in batches) / computed) if computed else 1.0
