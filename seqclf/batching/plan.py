"""Plan of an epoch.

A pure function takes the lengths of the rows and divides the rows into batches within a token budget. Any process can
compute the rows of any step of any epoch from (seed, epoch) alone. Several ranks can therefore divide an epoch without
communication, and a run can resume inside an epoch.
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

    **Size.** A batch costs `count * longest` tokens, padding included: its number of rows times the length of its
    longest row. The cost is at most `max_tokens`, unless a single sequence is longer than `max_tokens`. A batch has at
    most `max_sequences` rows. If `overhead` is set, a batch ends early if another batch costs less than the padding
    that is saved (see `_cheapest`).

    **Order.** Rows are shuffled by (`seed`, `epoch`). The shuffled rows are cut into pools of about `pool_batches`
    batches per planned rank, and each pool is sorted by length. A batch therefore has rows of similar length, and the
    order of the batches is still random. `pool_batches=None` sorts all rows, longest first, without shuffling (for
    evaluation and prediction).

    **Rows.** With `balance` 0, an epoch reads every row once. With `balance` above 0, an epoch draws N rows so that the
    fraction of each class in `labels` is proportional to (class size) ** (1 - `balance`). All rows of one class are
    drawn equally often, up to a difference of one draw.

    **Ranks.** A step is a set of rows that fills one batch for each of the `ranks` planned ranks. If `ranks` is None,
    `world_size` ranks are planned. The rows of a step are sorted and divided among the `world_size` running ranks, so
    that all ranks get equal costs. All ranks have the same number of steps, and the rows of a step do not depend on
    `world_size`. In a step with fewer rows than `world_size`, the last ranks get an empty batch. With fewer running
    ranks than planned ranks, batches exceed the limits and hold more padding.

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
            # With several ranks, the rows of this rank are copied. A view of the pool would keep the whole pool in
            # memory.
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
