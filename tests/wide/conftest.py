"""Random sequences of tokens, and the logits of a path for them."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.torchlib_registry import share_registry

from seqclf.batching.collate import pad
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split

share_registry()


@pytest.fixture(scope="session")
def rows_of():
    """`rows_of(rng, count, fields, longest)` returns random sequences of up to `longest` tokens."""

    def make(rng, count, fields, longest=12):
        lengths = rng.integers(1, longest + 1, count)
        offsets = np.append(0, np.cumsum(lengths))
        made = {
            "category": lambda field: rng.integers(0, field["size"], offsets[-1]).astype(np.int32),
            "number": lambda field: rng.standard_normal((offsets[-1], field["width"])).astype(np.float32),
            "bag": lambda field: -np.sort(-rng.integers(0, field["size"], (offsets[-1], 3)), axis=1).astype(np.int32),
        }
        return Ragged(offsets, {field["name"]: made[field["kind"]](field) for field in fields})

    return make


@pytest.fixture(scope="session")
def labels_of():
    """`labels_of(sequences, classes)` returns labels that the tokens tell, by the mean value of the first field."""

    def make(sequences, classes):
        values = next(iter(sequences.fields.values()))
        values = values.reshape(len(values), -1).mean(axis=1, dtype=np.float64)
        means = np.add.reduceat(values, sequences.offsets[:-1]) / sequences.lengths
        return np.searchsorted(np.quantile(means, np.arange(1, classes) / classes), means)

    return make


@pytest.fixture(scope="session")
def split_of():
    """`split_of(sequences, labels)` returns them as a split."""

    def make(sequences, labels, groups=None):
        numbers = np.arange(len(labels))
        return Split(sequences, np.asarray(labels), pa.array(numbers.astype(str)), numbers, groups=groups)

    return make


@pytest.fixture(scope="session")
def logits_of():
    """`logits_of(path, sequences, rows)` returns the logits of some rows in one batch."""

    def make(path, sequences, rows=None):
        rows = np.arange(len(sequences)) if rows is None else np.asarray(rows)
        fields, lengths = pad(sequences, rows)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        with torch.inference_mode():
            return path(tensors, torch.from_numpy(lengths))

    return make
