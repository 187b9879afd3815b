"""Plan of an epoch: a pure function from lengths to batches within a token budget.

Any process can compute the rows of any step of any epoch from (seed, epoch) alone. This is what lets ranks share an
epoch without talking to each other, and a run resume inside one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from seqclf.batching.steps import Limits, deal_step, step_bounds, step_cost
from seqclf.batching.token_budget import AUTO, unlimited_budget
from seqclf.errors import InputError

if TYPE_CHECKING:  # a bundle plans its batches too, without pydantic
    from seqclf.batching.options import BatchingOptions

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
    ranks: int | None = None,
) -> list[np.ndarray]:
    """Return the batches of this rank's epoch, each as row indices into `lengths` ((N,) int64, at least 1 each).

    **Size.** A batch costs `count * longest` tokens, padding included. It stays within `max_tokens`, unless a single
    sequence is longer, and within `max_sequences` rows. Its rows are a multiple of `multiple_of` where it can hold as
    many. With `overhead` it ends earlier where another batch costs less than the padding it saves (see `_cheapest`).
    With the bucket boundaries `edges`, lengths count as rounded up.

    **Order.** Rows are shuffled by (`seed`, `epoch`), then sorted by length inside pools of about `pool_batches`
    batches of each planned rank, so that a batch holds similar lengths and an epoch is still random.
    `pool_batches=None` sorts all rows, longest first, and shuffles nothing (evaluation, prediction). `largest_first`
    begins the first epoch with the step of the costliest batch, which shows whether memory suffices.

    **Rows.** An epoch reads every row once, unless `balance` is above 0. Then it draws N rows so that the share of a
    class of `labels` is proportional to its size to the power of 1 - `balance`. Rows of a class are drawn equally
    often, give or take once.

    **Ranks.** A step is a set of rows that fills a batch for each of `ranks` ranks (None: `world_size`). The rows of a
    step are dealt to the `world_size` ranks that are present, sorted and in parts of equal cost. Each rank has the same
    number of steps, and the rows of a step do not depend on `world_size`. A step with fewer rows than `world_size`
    gives the last ranks an empty batch. Fewer ranks than planned get batches beyond the limits, with more padding too.

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
    limits = Limits(max_tokens, max_sequences or max(1, len(costs)), multiple_of, overhead)
    planned = ranks or world_size
    generator = np.random.default_rng([seed, epoch])
    if pool_batches is None:
        order, size = np.arange(len(costs)), max(1, len(costs))
    else:
        order = _draw_rows(generator, len(costs), labels, balance)
        mean = max(1.0, _mean(costs, order, balance)) if len(order) else 1.0
        size = max(1, int(pool_batches * planned * min(limits.max_rows, max(1, max_tokens // mean))))
    compares = largest_first and epoch == 0 and pool_batches is not None
    batches: list[np.ndarray] = []
    step_costs: list[int] = []
    left = order[:0].astype(np.int64)  # rows that did not fill a step of their pool
    for start in range(0, len(order), size):
        rows = np.concatenate([left, order[start : start + size]])
        rows = rows[_sort_descending(costs[rows])]
        descending = costs[rows]
        bounds = step_bounds(descending, limits, planned, last=start + size >= len(order))
        for first, end in pairwise(bounds):
            if compares:
                step_costs.append(step_cost(descending[first:end], limits, planned))
            part = slice(first, end)
            if world_size > 1:
                parts = first + deal_step(descending[part], limits, planned, world_size)
                part = slice(parts[rank], parts[rank + 1])
            # A copy, so that one of several ranks keeps its rows alone and not the pool.
            batches.append(rows[part] if world_size == 1 else rows[part].copy())
        left = rows[bounds[-1] :]
    if pool_batches is None:
        return batches
    steps = generator.permutation(len(batches))
    if compares and len(steps):
        heaviest = np.argmax(np.array(step_costs)[steps])
        steps = np.concatenate([steps[[heaviest]], np.delete(steps, heaviest)])
    return [batches[step] for step in steps.tolist()]


def plan_arguments(options: BatchingOptions, lengths: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Return the arguments of `plan_batches` for training from the options of conf/batching.

    `max_tokens=auto` becomes the highest number that can matter. A training lowers it to what its memory holds.
    """
    copied = ("max_sequences", "pool_batches", "multiple_of", "overhead", "balance", "largest_first")
    edges = None if options.edges is None else bucket_edges(lengths, options.edges)
    max_tokens = options.max_tokens
    if max_tokens == AUTO:
        max_tokens = unlimited_budget(options.max_sequences, lengths if edges is None else round_up(lengths, edges))
    settings = {key: getattr(options, key) for key in copied}
    return {**settings, "max_tokens": max_tokens, "edges": edges, "labels": labels}


def _draw_rows(generator: np.random.Generator, count: int, labels: np.ndarray | None, balance: float) -> np.ndarray:
    """Return the rows of an epoch in random order."""
    if not balance or labels is None or not count:
        order = np.arange(count, dtype=np.int32 if count < 2**31 else np.int64)
        generator.shuffle(order)  # the draws do not depend on the type
        return order
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


def _mean(costs: np.ndarray, order: np.ndarray, balance: float) -> float:
    """Return the mean length of an epoch's rows. Sums of integers do not depend on their order."""
    return float(costs[order].mean() if balance else costs.mean())


def _sort_descending(lengths: np.ndarray) -> np.ndarray:
    """Return the stable order of descending lengths."""
    below_longest = lengths.max(initial=0) - lengths
    if below_longest.max(initial=0) < 2**16:
        below_longest = below_longest.astype(np.uint16)  # NumPy sorts 16 bits by radix, several times as fast
    return np.argsort(below_longest, kind="stable")


def padding_efficiency(lengths: np.ndarray, batches: list[np.ndarray], edges: np.ndarray | None = None) -> float:
    """Return the share of computed tokens that are real, not padding."""
    costs = lengths if edges is None else round_up(lengths, edges)
    computed = sum(len(rows) * int(costs[rows].max(initial=0)) for rows in batches)
    return float(sum(int(lengths[rows].sum()) for rows in batches) / computed) if computed else 1.0
