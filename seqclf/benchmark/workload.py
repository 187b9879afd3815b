"""What is benchmarked: sequences of some distribution of lengths, or the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.plan import plan_batches
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Ragged, Split
from seqclf.errors import InputError

VOCABULARY = 1000
MARKS = (1, 2)  # the tokens that give a generated sequence its class
Draw = Callable[[np.random.Generator, int], np.ndarray]
LENGTHS: dict[str, Draw] = {
    "equal": lambda generator, count: np.full(count, 50),
    "uniform": lambda generator, count: generator.integers(2, 101, count),
    "log_normal": lambda generator, count: np.clip(np.exp(generator.normal(3.5, 0.8, count)), 2, 400),
    "heavy_tailed": lambda generator, count: np.clip(8 * (1 + generator.pareto(1.1, count)), 2, 800),
}


class Workload(NamedTuple):
    """Sequences, what a model of them needs to know, and the rows of each update: as many in each. `costliest`: of the
    batch that holds the longest sequences."""

    name: str
    split: Split
    classes: list[str]
    fields: list[dict[str, Any]]
    updates: list[np.ndarray]
    costliest: np.ndarray

    @property
    def longest(self) -> int:
        """Of all sequences there are, whether an update holds it or not: static shapes must have room for it."""
        return int(self.split.sequences.lengths.max())

    @property
    def mean(self) -> float:
        """Of the sequences that are trained on."""
        return float(np.mean(self.split.sequences.lengths[np.concatenate(self.updates)]))


def generated(name: str, sequences: int, batch_size: int, updates: int, seed: int) -> Workload:
    """Random tokens and one mark somewhere, which is the class."""
    if name not in LENGTHS:
        raise InputError(f"lengths={name}: must be one of {', '.join(LENGTHS)}")
    generator = np.random.default_rng(seed)
    lengths = LENGTHS[name](generator, sequences).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = generator.integers(max(MARKS) + 1, VOCABULARY, offsets[-1]).astype(np.int32)
    labels = generator.integers(0, len(MARKS), sequences)
    tokens[offsets[:-1] + generator.integers(0, lengths)] = np.array(MARKS, np.int32)[labels]
    rows = np.arange(sequences)
    split = Split(Ragged(offsets, {"token": tokens}), labels, pa.array(rows.astype(str)), rows)
    fields = [{"name": "token", "kind": "category", "size": VOCABULARY}]
    return Workload(name, split, ["first", "second"], fields, *_updates(split, batch_size, updates, seed))


def of_dataset(dataset: Dataset, batch_size: int, updates: int, seed: int) -> Workload:
    """The training rows of a dataset."""
    split = dataset.splits["train"]
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    return Workload("data", split, dataset.classes, specs, *_updates(split, batch_size, updates, seed))


def _updates(split: Split, batch_size: int, count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Batches of an epoch, each of `batch_size` rows, so that static shapes are possible at all: `count` from its
    quantiles of length, in random order, and the longest."""
    lengths = split.sequences.lengths
    if len(lengths) < batch_size:
        raise InputError(f"batch_size={batch_size}: there are only {len(lengths)} sequences; take a smaller one")
    whole = int(lengths.max()) * batch_size
    plan = plan_batches(lengths, max_tokens=whole, max_sequences=batch_size, pool_batches=50, seed=seed, epoch=0)
    full = sorted((rows for rows in plan if len(rows) == batch_size), key=lambda rows: lengths[rows].max())
    chosen = ((np.arange(count) + 0.5) / count * len(full)).astype(int)
    return [full[place] for place in np.random.default_rng(seed).permutation(chosen)], full[-1]
