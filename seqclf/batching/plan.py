"""Lengths → batches: a pure function, so that any process can tell which rows any step of any epoch reads."""

from __future__ import annotations

import numpy as np

from seqclf.errors import InputError


def plan_batches(
    lengths: np.ndarray,
    *,
    max_tokens: int,
    max_sequences: int | None,
    pool_batches: int | None,
    seed: int,
    epoch: int,
    world_size: int = 1,
    rank: int = 0,
) -> list[np.ndarray]:
    """The rows of each step, as positions in `lengths` ((N,) int64, each at least 1).

    A batch costs `count * longest` tokens, padding included, and keeps to `max_tokens` unless a single sequence is
    longer; it holds at most `max_sequences`. Rows are shuffled by (`seed`, `epoch`), then sorted by length inside
    pools of about `pool_batches` batches, so that a batch is of similar lengths and an epoch still random.
    `pool_batches=None` sorts everything, longest first, and shuffles nothing (evaluation, prediction).

    With several ranks each gets the same number of steps and, at each step, similar lengths; the largest batches are
    cut in two until the count divides, so no row is lost; one is doubled only where all batches are of one row.
    """
    if max_tokens < 1 or (max_sequences is not None and max_sequences < 1):
        raise InputError(
            f"batching.max_tokens={max_tokens}, batching.max_sequences={max_sequences}: must be at least 1"
        )
    lengths = np.asarray(lengths)
    limit = max_sequences or len(lengths)
    if pool_batches is None:
        order = np.argsort(-lengths, kind="stable")
        batches = _cut(order, lengths[order], max_tokens, limit)
    else:
        generator = np.random.default_rng([seed, epoch])
        order = generator.permutation(len(lengths))
        batches = _pooled(order, lengths, max_tokens, limit, pool_batches)
    batches = _divisible(batches, world_size)
    groups = [batches[start : start + world_size] for start in range(0, len(batches), world_size)]
    if pool_batches is not None:
        groups = [groups[position] for position in generator.permutation(len(groups))]
    return [group[rank] for group in groups]


def _pooled(order: np.ndarray, lengths: np.ndarray, max_tokens: int, limit: int, pool_batches: int) -> list[np.ndarray]:
    """Cut each pool of shuffled rows, longest first."""
    mean = max(1.0, float(lengths.mean())) if len(lengths) else 1.0
    pool = max(1, int(pool_batches * min(limit, max(1, max_tokens // mean))))
    batches: list[np.ndarray] = []
    for start in range(0, len(order), pool):
        rows = order[start : start + pool]
        rows = rows[np.argsort(-lengths[rows], kind="stable")]
        batches += _cut(rows, lengths[rows], max_tokens, limit)
    return batches


def _cut(rows: np.ndarray, descending: np.ndarray, max_tokens: int, limit: int) -> list[np.ndarray]:
    """Consecutive batches of `rows`, whose lengths descend: the first of a batch is its longest."""
    batches, start = [], 0
    while start < len(rows):
        count = max(1, min(limit, max_tokens // int(descending[start])))
        batches.append(rows[start : start + count])
        start += count
    return batches


def _divisible(batches: list[np.ndarray], world_size: int) -> list[np.ndarray]:
    """Halve the batches of most rows, in place, until their number divides by `world_size`."""
    batches = list(batches)
    while batches and len(batches) % world_size:
        largest = max(range(len(batches)), key=lambda position: len(batches[position]))
        rows = batches[largest]
        half = (len(rows) + 1) // 2
        batches[largest : largest + 1] = [rows[:half], rows[half:]] if half < len(rows) else [rows, rows]
    return batches


def padding_efficiency(lengths: np.ndarray, batches: list[np.ndarray]) -> float:
    """Real steps over computed steps."""
    computed = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
    return float(sum(int(lengths[rows].sum()) for rows in batches) / computed) if computed else 1.0
