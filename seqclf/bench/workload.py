"""Workloads of a benchmark: batches of generated sequences, or batches of sequences from a dataset."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.plan import plan_batches
from seqclf.bench.modes import LENGTH_DISTRIBUTIONS, DrawLengths
from seqclf.data.encoding.encoders import input_specs
from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.sequence_summary import summarize_sequences
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject

VOCABULARY_SIZE = 1000
CLASS_TOKENS = (1, 2)  # token of each of the two classes; a generated sequence has exactly one class token


class Workload(NamedTuple):
    """Sequences of a benchmark, and the batches of these sequences that each round uses.

    `fields`: field specs for the model. `batches`: row numbers (B,) of each batch. B is the same for all batches.
    `longest_batch`: row numbers of the batch that needs the most memory, because its sequences are the longest.
    """

    name: str
    split: Split
    classes: list[str]
    fields: list[FieldSpec]
    batches: list[np.ndarray]
    longest_batch: np.ndarray

    @property
    def description(self) -> dict[str, Any]:
        """Facts that a network may adapt to, as in `Dataset.description()`."""
        sequences = self.split.sequences
        summary = summarize_sequences(sequences, self.fields)
        return {"fields": self.fields, "rows": {"train": len(sequences)}, "sequences": summary}

    @property
    def max_length(self) -> int:
        """Length of the longest sequence of the workload.

        The longest sequence may be in none of the batches. Batches with static shapes are still padded to this length.
        """
        return int(self.split.sequences.lengths.max())

    @property
    def tokens(self) -> int:
        """Number of tokens in all batches, without padding."""
        return int(self.split.sequences.lengths[np.concatenate(self.batches)].sum())

    @property
    def size(self) -> JsonObject:
        """Mean length in the batches, length of the longest sequence, number of batches, and sequences in a batch."""
        updates, batch_size = len(self.batches), len(self.batches[0])
        mean_length = self.tokens / (updates * batch_size)
        return {"mean_length": mean_length, "longest": self.max_length, "updates": updates, "batch_size": batch_size}


def generate_workload(lengths: str | DrawLengths, sequences: int, batch_size: int, batches: int, seed: int) -> Workload:
    """Generate a workload of random sequences. One token at a random position decides the class of a sequence.

    `lengths`: name of a distribution in `LENGTH_DISTRIBUTIONS`, or a function that draws the lengths.
    """
    name, draw_lengths = (lengths, LENGTH_DISTRIBUTIONS[lengths]) if isinstance(lengths, str) else ("own", lengths)
    generator = np.random.default_rng(seed)
    drawn = draw_lengths(generator, sequences).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(drawn)])
    # The id 0 stands for unknown values. The ids of the class tokens come next, then the ids of all other tokens.
    tokens = generator.integers(max(CLASS_TOKENS) + 1, VOCABULARY_SIZE, offsets[-1]).astype(np.int32)
    labels = generator.integers(0, len(CLASS_TOKENS), sequences)
    tokens[offsets[:-1] + generator.integers(0, drawn)] = np.array(CLASS_TOKENS, np.int32)[labels]
    rows = np.arange(sequences)
    fields: list[FieldSpec] = [{"name": "token", "kind": "category", "size": VOCABULARY_SIZE}]
    split = Split(Ragged(offsets, {"token": tokens}), labels, pa.array(rows.astype(str)), rows)
    step_batches, longest_batch = _select_batches(split, batch_size, batches, seed)
    return Workload(name, split, ["first", "second"], fields, step_batches, longest_batch)


def dataset_workload(dataset: Dataset, batch_size: int, batches: int, seed: int) -> Workload:
    """Return a workload with batches of training rows of a dataset."""
    split = dataset.splits["train"]
    specs = input_specs(dataset.encoders, dataset.classes)
    step_batches, longest_batch = _select_batches(split, batch_size, batches, seed)
    return Workload("data", split, dataset.classes, specs, step_batches, longest_batch)


def _select_batches(split: Split, batch_size: int, count: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Select `count` batches of an epoch.

    Return the selected batches in random order, and the batch with the longest sequence. All batches of the epoch are
    sorted by their longest sequence, and batches at evenly spaced positions are selected. With this selection, a few
    batches represent the whole epoch. Static shapes require that all batches have `batch_size` rows.
    """
    lengths = split.sequences.lengths
    if len(lengths) < batch_size:
        raise InputError(f"batch_size={batch_size}", f"there are only {len(lengths)} sequences", "set a smaller one")
    max_tokens = int(lengths.max()) * batch_size  # large enough that only `batch_size` limits a batch
    plan = plan_batches(lengths, max_tokens=max_tokens, max_sequences=batch_size, pool_batches=50, seed=seed, epoch=0)
    # The plan may have batches with fewer rows, which do not fit static shapes.
    full_batches = [rows for rows in plan if len(rows) == batch_size]
    by_length = sorted(full_batches, key=lambda rows: lengths[rows].max())
    quantiles = ((np.arange(count) + 0.5) / count * len(by_length)).astype(int)
    order = np.random.default_rng(seed).permutation(quantiles)
    return [by_length[index] for index in order], by_length[-1]
