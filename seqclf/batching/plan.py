"""Plan of an epoch: a pure function from lengths to batches within a token budget.

Any process can compute the rows of any step of any epoch from (seed, epoch) alone. This is what lets ranks share an
epoch without talking to each other, and a run resume inside one.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqclf.errors import InputError

# Bucket boundaries: a few lengths to which all others are rounded up, for computing with fixed shapes.

MAX_CANDIDATES = 512  # different lengths; time and memory grow with their square


def bucket_edges(lengths: np.ndarray, count: int) -> np.ndarray:
    """Choose at most `count` ascending lengths, ending in the longest, to which rounding up adds the fewest tokens.

    The choice is exact for up to `MAX_CANDIDATES` different lengths. Beyond that, edges are chosen among quantiles.

    >>> bucket_edges(np.array([3, 4, 4, 9, 10]), count=2).tolist()
    [4, 10]
    """
    values, counts = np.unique(lengths, return_counts=True)
    if len(values) > MAX_CANDIDATES:
        quantiles = np.unique(np.quantile(lengths, np.linspace(0, 1, MAX_CANDIDATES + 1), method="higher"))
        counts = np.add.reduceat(counts, np.concatenate([[0], np.searchsorted(values, quantiles[:-1], side="right")]))
        values = quantiles
    if len(values) <= count:
        return values
    below = np.concatenate([[0], np.cumsum(counts)])
    # cost[i, j]: tokens if all lengths longer than the i-th value, up to the j-th, are rounded up to the j-th.
    cost = (below[None, 1:] - below[:-1, None]) * values[None, :].astype(np.float64)
    cost[np.tril_indices(len(values), -1)] = np.inf
    # Dynamic programming over the number of edges. lowest[j]: cost of all lengths up to the j-th value, itself an edge.
    lowest = cost[0]
    choices = []
    for _ in range(count - 1):
        totals = lowest[:-1, None] + cost[1:]
        choice = totals.argmin(axis=0)
        lower = totals[choice, np.arange(len(values))]
        choices.append(np.where(lower < lowest, choice, -1))
        lowest = np.minimum(lower, lowest)
    edges = [len(values) - 1]
    for choice in reversed(choices):
        if choice[edges[-1]] >= 0:
            edges.append(int(choice[edges[-1]]))
    return values[edges[::-1]]


def round_up(lengths: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Round each length up to the next edge. A length beyond the last edge stays as it is.

    >>> round_up(np.array([1, 5, 6, 11]), np.array([5, 9])).tolist()
    [5, 5, 9, 11]
    """
    indices = np.searchsorted(edges, lengths)
    return np.where(indices < len(edges), edges[np.minimum(indices, len(edges) - 1)], lengths)


def plan_batches(
    lengths: np.ndarray,
    *,
    max_tokens: int,
    max_sequences: int | None,
    pool_batches: int | None,
    seed: int,
    epoch: int,
    multiple_of: int = 1,
    overhead: float | None = None,
    edges: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    balance: float = 0.0,
    largest_first: bool = False,
    world_size: int = 1,
    rank: int = 0,
) -> list[np.ndarray]:
    """Return the batches of this rank's epoch, each as row indices into `lengths` ((N,) int64, at least 1 each).

    **Size.** A batch costs `count * longest` tokens, padding included. It stays within `max_tokens`, unless a single
    sequence is longer, and within `max_sequences` rows. Its rows are a multiple of `multiple_of` where it can hold as
    many. With `overhead` it ends earlier where another batch costs less than the padding it saves (see `_cheapest`).
    With the bucket boundaries `edges`, lengths count as rounded up.

    **Order.** Rows are shuffled by (`seed`, `epoch`), then sorted by length inside pools of about `pool_batches`
    batches, so that a batch holds similar lengths and an epoch is still random. `pool_batches=None` sorts all rows,
    longest first, and shuffles nothing (evaluation, prediction). `largest_first` begins the first epoch with the
    costliest batch, which shows whether memory suffices.

    **Rows.** An epoch reads every row once, unless `balance` is above 0. Then it draws N rows so that the share of a
    class of `labels` is proportional to its size to the power of 1 - `balance`. Rows of a class are drawn equally
    often, give or take once.

    **Ranks.** Each of `world_size` ranks gets the same number of steps and, at each step, similar lengths. The largest
    batches are halved until the count divides, so no row is lost. A row is read twice only where all batches hold a
    single row.

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
    costs = np.asarray(lengths) if edges is None else round_up(np.asarray(lengths), edges)
    limit = max_sequences or len(costs)
    generator = np.random.default_rng([seed, epoch])
    if pool_batches is None:
        pools = [np.argsort(-costs, kind="stable")]
    else:
        order = _draw_rows(generator, len(costs), labels, balance)
        mean = max(1.0, float(costs[order].mean())) if len(order) else 1.0
        size = max(1, int(pool_batches * min(limit, max(1, max_tokens // mean))))
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        pools = [rows[np.argsort(-costs[rows], kind="stable")] for rows in pools]
    batches = []
    for pool in pools:
        batches += _cut(pool, costs[pool], max_tokens, limit, multiple_of, overhead)
    batches = _divisible(batches, world_size)
    # A step is `world_size` batches in a row, which are of similar lengths.
    steps = np.arange(len(batches) // world_size)
    if pool_batches is not None:
        steps = generator.permutation(steps)
        if largest_first and epoch == 0 and len(steps):
            first_batches = [batches[step * world_size] for step in steps]
            heaviest = np.argmax([len(rows) * costs[rows[0]] for rows in first_batches])
            steps = np.concatenate([steps[[heaviest]], np.delete(steps, heaviest)])
    return [batches[step * world_size + rank] for step in steps.tolist()]


def plan_arguments(batching: Mapping[str, Any], lengths: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return the arguments of `plan_batches` for training from the settings of conf/batching."""
    copied = ("max_tokens", "max_sequences", "pool_batches", "multiple_of", "overhead", "balance", "largest_first")
    edges = None if batching["edges"] is None else bucket_edges(lengths, batching["edges"])
    return {**{key: batching[key] for key in copied}, "edges": edges, "labels": labels}


def _draw_rows(generator: np.random.Generator, count: int, labels: np.ndarray | None, balance: float) -> np.ndarray:
    """Return the rows of an epoch in random order."""
    if not balance or labels is None or not count:
        return generator.permutation(count)
    sizes = np.bincount(labels)
    shares = np.where(sizes > 0, sizes, 1.0) ** (1.0 - balance) * (sizes > 0)
    # Largest remainders: integer numbers of rows that add up to `count`.
    quotas = shares / shares.sum() * count
    counts = np.floor(quotas).astype(np.int64)
    counts[np.argsort(counts - quotas, kind="stable")[: count - counts.sum()]] += 1
    drawn = []
    for label in np.flatnonzero(counts).tolist():
        class_rows = np.flatnonzero(labels == label)
        rounds = -(-counts[label] // len(class_rows))
        drawn.append(np.concatenate([generator.permutation(class_rows) for _ in range(rounds)])[: counts[label]])
    return generator.permutation(np.concatenate(drawn))


def _cut(
    rows: np.ndarray, descending: np.ndarray, max_tokens: int, limit: int, multiple_of: int, overhead: float | None
) -> list[np.ndarray]:
    """Cut `rows`, sorted by `descending` lengths, into consecutive batches. The first row of a batch is its longest."""
    batches, start = [], 0
    while start < len(rows):
        count = max(1, min(limit, max_tokens // int(descending[start])))
        if count > multiple_of:
            count -= count % multiple_of
        if overhead is not None:
            count = _cheapest(descending[start : start + count], multiple_of, overhead)
        batches.append(rows[start : start + count])
        start += count
    return batches


def _cheapest(descending: np.ndarray, multiple_of: int, overhead: float) -> int:
    """Return the number of these rows to take so that they and the rest, as a second batch, cost the least together.

    A batch costs longest * (count + overhead).
    """
    if descending[0] == descending[-1]:
        return len(descending)
    counts = np.arange(multiple_of, len(descending), multiple_of)
    saved = (descending[0] - descending[counts]) * (len(descending) - counts) - overhead * descending[counts]
    return int(counts[saved.argmax()]) if len(counts) and saved.max() > 0 else len(descending)


def _divisible(batches: list[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Halve the batches with the most rows until their number divides by `world_size`. Their order stays."""
    missing = -len(batches) % world_size
    if not missing or not batches:
        return batches
    heap = [(-len(rows), index) for index, rows in enumerate(batches)]
    heapq.heapify(heap)
    pieces: dict[int, list[np.ndarray]] = {}
    for _ in range(missing):
        _, index = heap[0]
        parts = pieces.setdefault(index, [batches[index]])
        largest = max(range(len(parts)), key=lambda part: len(parts[part]))
        rows = parts[largest]
        half = (len(rows) + 1) // 2
        # A batch of a single row cannot be halved: another rank reads the row too.
        parts[largest : largest + 1] = [rows[:half], rows[half:]] if half < len(rows) else [rows, rows]
        heapq.heapreplace(heap, (-max(map(len, parts)), index))
    return [rows for index, batch in enumerate(batches) for rows in pieces.get(index, [batch])]


def padding_efficiency(lengths: np.ndarray, batches: list[np.ndarray], edges: np.ndarray | None = None) -> float:
    """Return the share of computed tokens that are real, not padding."""
    costs = lengths if edges is None else round_up(lengths, edges)
    computed = sum(len(rows) * int(costs[rows].max()) for rows in batches)
    return float(sum(int(lengths[rows].sum()) for rows in batches) / computed) if computed else 1.0
