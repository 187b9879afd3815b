"""Generated sequences of several distributions of lengths, for the other scripts. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.plan import plan_batches
from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split

DrawLengths = Callable[[np.random.Generator, int], np.ndarray]
# From no padding in static graphs to much. Lengths are bounded, so that batches of the longest fit in memory.
LENGTH_DISTRIBUTIONS: dict[str, DrawLengths] = {
    "equal": lambda generator, count: np.full(count, 50),
    "uniform": lambda generator, count: generator.integers(2, 101, count),
    "log_normal": lambda generator, count: np.clip(np.exp(generator.normal(3.5, 0.8, count)), 2, 400),
    "heavy_tailed": lambda generator, count: np.clip(8 * (1 + generator.pareto(1.1, count)), 2, 800),
}
CLASS_TOKENS, VOCABULARY_SIZE = (1, 2), 1000  # a sequence has exactly one token of CLASS_TOKENS, that of its class


class Workload(NamedTuple):
    """Sequences, and the row numbers of the batches that each round uses, all of the same number of rows."""

    split: Split
    fields: list[FieldSpec]
    batches: list[np.ndarray]
    longest_batch: np.ndarray

    @property
    def tokens(self) -> int:
        """Number of tokens in all batches, without padding."""
        return int(self.split.sequences.lengths[np.concatenate(self.batches)].sum())


def generate_workload(lengths: str | DrawLengths, sequences: int, batch_size: int, batches: int, seed: int) -> Workload:
    """Generate random sequences, in which one token at a random position decides the class.

    `lengths`: name of a distribution, or a function that draws the lengths. The batches stand for an epoch: they lie at
    even distances among its full batches, sorted by length.
    """
    draw_lengths, generator = LENGTH_DISTRIBUTIONS.get(lengths, lengths), np.random.default_rng(seed)
    drawn = draw_lengths(generator, sequences).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(drawn)])
    tokens = generator.integers(max(CLASS_TOKENS) + 1, VOCABULARY_SIZE, offsets[-1]).astype(np.int32)
    labels = generator.integers(0, len(CLASS_TOKENS), sequences)
    tokens[offsets[:-1] + generator.integers(0, drawn)] = np.array(CLASS_TOKENS, np.int32)[labels]
    ids = np.arange(sequences)
    split = Split(Ragged(offsets, {"token": tokens}), labels, pa.array(ids.astype(str)), ids)
    limits = {"max_tokens": int(drawn.max()) * batch_size, "max_sequences": batch_size, "pool_batches": 50}
    plan = [rows for rows in plan_batches(drawn, **limits, seed=seed, epoch=0) if len(rows) == batch_size]
    plan.sort(key=lambda rows: drawn[rows].max())
    quantiles = ((np.arange(batches) + 0.5) / batches * len(plan)).astype(int)
    chosen = [plan[index] for index in np.random.default_rng(seed).permutation(quantiles)]
    return Workload(split, [{"name": "token", "kind": "category", "size": VOCABULARY_SIZE}], chosen, plan[-1])
