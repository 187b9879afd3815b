"""Lengths → batches: a pure function, so that any process can tell which rows any step of any epoch reads."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqclf.batching.bucket_boundaries import bucket_edges, round_up
from seqclf.errors import InputError


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
    """The rows of each step, as positions in `lengths` ((N,) int64, each at least 1).

    A batch costs `count * longest` tokens, padding included, and keeps to `max_tokens` unless a single sequence is
    longer; it holds at most `max_sequences`, and a multiple of `multiple_of` where it can hold as many. With `overhead`
    it ends earlier where another batch costs less than the padding it saves (see `_worth`). With `edges` (see
    `bucket_edges`) lengths count as rounded up. Rows are shuffled by (`seed`, `epoch`), then sorted by length
    inside pools of about `pool_batches` batches, so that a batch is of similar lengths and an epoch still random.
    `pool_batches=None` sorts everything, longest first, and shuffles nothing (evaluation, prediction).

    An epoch reads every row once, unless `balance` is above 0: then it draws N rows so that the share of a class of
    `labels` is as its size to the power of 1 - `balance`, each row of a class as often as any other, give or take one.
    `largest_first` puts the costliest step of the first epoch to its start, where it shows whether memory suffices.

    With several ranks each gets the same number of steps and, at each step, similar lengths; the largest batches are
    cut in two until the count divides, so no row is lost; one is doubled only where all batches are of one row.
    """
    if max_tokens < 1 or (max_sequences is not None and max_sequences < 1):
        raise InputError(
            f"batching.max_tokens={max_tokens}, batching.max_sequences={max_sequences}: must be at least 1"
        )
    costs = np.asarray(lengths) if edges is None else round_up(np.asarray(lengths), edges)
    limit = max_sequences or len(costs)
    generator = np.random.default_rng([seed, epoch])
    if pool_batches is None:
        pools = [np.argsort(-costs, kind="stable")]
    else:
        order = _drawn(generator, len(costs), labels, balance)
        mean = max(1.0, float(costs[order].mean())) if len(order) else 1.0
        size = max(1, int(pool_batches * min(limit, max(1, max_tokens // mean))))
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        pools = [rows[np.argsort(-costs[rows], kind="stable")] for rows in pools]
    batches = [rows for pool in pools for rows in _cut(pool, costs[pool], max_tokens, limit, multiple_of, overhead)]
    batches = _divisible(batches, world_size)
    steps = np.arange(len(batches) // world_size)
    if pool_batches is not None:
        steps = generator.permutation(steps)
        if largest_first and epoch == 0 and len(steps):
            firsts = [batches[step * world_size] for step in steps]
            heaviest = np.argmax([len(rows) * costs[rows[0]] for rows in firsts])
            steps = np.concatenate([steps[[heaviest]], np.delete(steps, heaviest)])
    return [batches[step * world_size + rank] for step in steps.tolist()]


def plan_arguments(batching: Mapping[str, Any], lengths: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """What conf/batching says of training, as arguments of `plan_batches`."""
    same = ("max_tokens", "max_sequences", "pool_batches", "multiple_of", "overhead", "balance", "largest_first")
    edges = None if batching["edges"] is None else bucket_edges(lengths, batching["edges"])
    return {**{key: batching[key] for key in same}, "edges": edges, "labels": labels}


def _drawn(generator: np.random.Generator, count: int, labels: np.ndarray | None, balance: float) -> np.ndarray:
    """The rows of an epoch in random order."""
    if not balance or labels is None or not count:
        return generator.permutation(count)
    sizes = np.bincount(labels)
    shares = np.where(sizes > 0, sizes, 1.0) ** (1.0 - balance) * (sizes > 0)
    # Largest remainders: whole numbers of rows that add up to `count`.
    wanted = shares / shares.sum() * count
    counts = np.floor(wanted).astype(np.int64)
    counts[np.argsort(counts - wanted, kind="stable")[: count - counts.sum()]] += 1
    drawn = []
    for label in np.flatnonzero(counts).tolist():
        own = np.flatnonzero(labels == label)
        rounds = -(-counts[label] // len(own))
        drawn.append(np.concatenate([generator.permutation(own) for _ in range(rounds)])[: counts[label]])
    return generator.permutation(np.concatenate(drawn))


def _cut(
    rows: np.ndarray, descending: np.ndarray, max_tokens: int, limit: int, multiple_of: int, overhead: float | None
) -> list[np.ndarray]:
    """Consecutive batches of `rows`, whose costs descend: the first of a batch is its longest."""
    batches, start = [], 0
    while start < len(rows):
        count = max(1, min(limit, max_tokens // int(descending[start])))
        if count > multiple_of:
            count -= count % multiple_of
        if overhead is not None:
            count = _worth(descending[start : start + count], multiple_of, overhead)
        batches.append(rows[start : start + count])
        start += count
    return batches


def _worth(descending: np.ndarray, multiple_of: int, overhead: float) -> int:
    """How many of these rows to take so that they, and the rest as a batch of its own, cost the least together, where
    a batch costs longest * (count + overhead)."""
    if descending[0] == descending[-1]:
        return len(descending)
    counts = np.arange(multiple_of, len(descending), multiple_of)
    saved = (descending[0] - descending[counts]) * (len(descending) - counts) - overhead * descending[counts]
    return int(counts[saved.argmax()]) if len(counts) and saved.max() > 0 else len(descending)


def _divisible(batches: list[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Halve the batches of most rows until their number divides by `world_size`; the order stays."""
    missing = -len(batches) % world_size
    if not missing or not batches:
        return batches
    heap = [(-len(rows), place) for place, rows in enumerate(batches)]
    heapq.heapify(heap)
    pieces: dict[int, list[np.ndarray]] = {}
    for _ in range(missing):
        _, place = heap[0]
        whole = pieces.setdefault(place, [batches[place]])
        part = max(range(len(whole)), key=lambda piece: len(whole[piece]))
        rows = whole[part]
        half = (len(rows) + 1) // 2
        whole[part : part + 1] = [rows[:half], rows[half:]] if half < len(rows) else [rows, rows]
        heapq.heapreplace(heap, (-max(map(len, whole)), place))
    return [rows for place, batch in enumerate(batches) for rows in pieces.get(place, [batch])]


def padding_efficiency(lengths: np.ndarray, batches: list[np.ndarray], edges: np.ndarray | None = None) -> float:
    """Real steps over computed steps."""
    costs = lengths if edges is None else round_up(lengths, edges)
    computed = sum(len(rows) * int(costs[rows].max()) for rows in batches)
    return float(sum(int(lengths[rows].sum()) for rows in batches) / computed) if computed else 1.0
