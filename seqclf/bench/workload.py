"""Workloads: generated sequences of a length distribution, or a dataset's own, cut into the batches of each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.plan import plan_batches
from seqclf.data.encoding.encoders import input_specs
from seqclf.data.field_spec import PARENTS, FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject

VOCABULARY_SIZE = 1000
REACH = 5  # of a node to its parent, in generated trees
CLASS_TOKENS = (1, 2)  # the one token that decides the class of a generated sequence
DrawLengths = Callable[[np.random.Generator, int], np.ndarray]
# From the best case of static graphs to the worst. Lengths are bounded, so that static batches fit in memory.
LENGTH_DISTRIBUTIONS: dict[str, DrawLengths] = {
    "equal": lambda generator, count: np.full(count, 50),
    "uniform": lambda generator, count: generator.integers(2, 101, count),
    "log_normal": lambda generator, count: np.clip(np.exp(generator.normal(3.5, 0.8, count)), 2, 400),
    "heavy_tailed": lambda generator, count: np.clip(8 * (1 + generator.pareto(1.1, count)), 2, 800),
}


@dataclass(frozen=True)
class WorkloadSize:
    """Name and size of a workload. `mean_length`: of the sequences that are trained on. `max_length`: of all."""

    name: str
    mean_length: float
    max_length: int
    steps: int
    batch_size: int

    def size_dict(self) -> JsonObject:
        """Return the size as plain values, in the form of the command's last line."""
        return {
            "mean_length": self.mean_length,
            "longest": self.max_length,
            "updates": self.steps,
            "batch_size": self.batch_size,
        }


class Workload(NamedTuple):
    """Sequences and the batches to train on.

    `fields`: specs of the fields, for the model. `batches`: the rows (B,) of each step, B the same in all of them.
    `longest_batch`: rows of the batch that holds the longest sequences, which need the most memory.
    """

    name: str
    split: Split
    classes: list[str]
    fields: list[FieldSpec]
    batches: list[np.ndarray]
    longest_batch: np.ndarray

    @property
    def max_length(self) -> int:
        """Length of the longest sequence. Static shapes must have room for it, even if no batch holds it."""
        return int(self.split.sequences.lengths.max())

    @property
    def mean_length(self) -> float:
        """Mean length of the sequences that are trained on."""
        return float(np.mean(self.split.sequences.lengths[np.concatenate(self.batches)]))

    def size(self) -> dict[str, Any]:
        """Return the arguments of `WorkloadSize`."""
        return {
            "name": self.name,
            "mean_length": self.mean_length,
            "max_length": self.max_length,
            "steps": len(self.batches),
            "batch_size": len(self.batches[0]),
        }


def generate_workload(
    length_distribution: str, sequences: int, batch_size: int, batches: int, seed: int, trees: bool = False
) -> Workload:
    """Generate sequences of random tokens with one token at a random position that decides the class.

    `trees`: the tokens are the nodes of random trees, see `random_parents`.
    """
    if length_distribution not in LENGTH_DISTRIBUTIONS:
        raise InputError(f"lengths={length_distribution}", f"must be one of {', '.join(LENGTH_DISTRIBUTIONS)}")
    generator = np.random.default_rng(seed)
    lengths = LENGTH_DISTRIBUTIONS[length_distribution](generator, sequences).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # Other tokens come after those of the classes; id 0 is the unknown value.
    tokens = generator.integers(max(CLASS_TOKENS) + 1, VOCABULARY_SIZE, offsets[-1]).astype(np.int32)
    labels = generator.integers(0, len(CLASS_TOKENS), sequences)
    tokens[offsets[:-1] + generator.integers(0, lengths)] = np.array(CLASS_TOKENS, np.int32)[labels]
    rows = np.arange(sequences)
    arrays = {"token": tokens}
    fields: list[FieldSpec] = [{"name": "token", "kind": "category", "size": VOCABULARY_SIZE}]
    if trees:
        arrays[PARENTS] = random_parents(lengths, generator)
        fields.append({"name": PARENTS, "kind": "parents", "node_classes": []})
    split = Split(Ragged(offsets, arrays), labels, pa.array(rows.astype(str)), rows)
    step_batches, longest_batch = _select_batches(split, batch_size, batches, seed)
    return Workload(length_distribution, split, ["first", "second"], fields, step_batches, longest_batch)


def random_parents(lengths: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the parents (S,) of the nodes of random trees: each node is below one of the next `REACH` ones.

    They are about a third as deep as they have nodes, like the parse trees of sentences. The last node is the root, -1.

    >>> random_parents(np.array([1, 3]), np.random.default_rng(0)).tolist()
    [-1, 1, 2, -1]
    """
    ends = np.repeat(np.cumsum(lengths), lengths)
    later = ends - 1 - np.arange(lengths.sum())  # nodes after this one in its tree
    nodes = np.repeat(lengths, lengths) - 1 - later
    above = nodes + 1 + (generator.random(len(later)) * np.minimum(later, REACH)).astype(np.int64)
    return np.where(later > 0, above, -1).astype(np.int32)


def dataset_workload(dataset: Dataset, batch_size: int, batches: int, seed: int) -> Workload:
    """Return the training rows of a dataset as a workload."""
    split = dataset.splits["train"]
    specs = input_specs(dataset.encoders, dataset.classes)
    step_batches, longest_batch = _select_batches(split, batch_size, batches, seed)
    return Workload("data", split, dataset.classes, specs, step_batches, longest_batch)


def _select_batches(split: Split, batch_size: int, count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Return `count` batches of an epoch in random order, and the one with the longest sequences.

    The batches are quantiles by length, so that a few of them stand for the epoch. All have `batch_size` rows, as
    static shapes need.
    """
    lengths = split.sequences.lengths
    if len(lengths) < batch_size:
        raise InputError(f"batch_size={batch_size}", f"there are only {len(lengths)} sequences", "set a smaller one")
    max_tokens = int(lengths.max()) * batch_size  # never the limit: batch_size rows of any length fit
    plan = plan_batches(lengths, max_tokens=max_tokens, max_sequences=batch_size, pool_batches=50, seed=seed, epoch=0)
    # A pool may end with a short batch, which no static shape fits.
    full_batches = [rows for rows in plan if len(rows) == batch_size]
    by_length = sorted(full_batches, key=lambda rows: lengths[rows].max())
    quantiles = ((np.arange(count) + 0.5) / count * len(by_length)).astype(int)
    order = np.random.default_rng(seed).permutation(quantiles)
    return [by_length[index] for index in order], by_length[-1]
