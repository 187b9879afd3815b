"""Small data of each kind, and networks of heads that are fitted to it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from seqclf.batching.batches import SplitRows
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.models.auto.config import HeadsConfig
from seqclf.models.auto.heads_classifier import HeadsClassifier

NUMBER: dict[str, Any] = {"name": "value", "kind": "number", "width": 3}
CATEGORY: dict[str, Any] = {"name": "token", "kind": "category", "size": 12}
BAG: dict[str, Any] = {"name": "tags", "kind": "bag", "size": 9, "combine": "mean"}
MASKED: dict[str, Any] = {
    "name": "vital",
    "kind": "number",
    "width": 4,
    "masked": 2,
    "scaled": [True, True, False, False],
}
PLAIN = {
    "heads": ["recurrent", "kernels"], "window": 1, "dilations": [1, 2], "closed_form": True, "embedding_size": 6,
    "projection_size": 8, "hidden_size": 8, "convolution": 0, "dropout": 0.4, "feature_dropout": 0.25,
}  # fmt: skip
ROWS = 40


def random_split(fields: list[dict[str, Any]], rows: int = ROWS, longest: int = 30, seed: int = 0) -> Split:
    random = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(random.integers(1, longest + 1, rows))])
    arrays: dict[str, np.ndarray] = {}
    for field in fields:
        tokens = rows if field.get("static") else int(offsets[-1])
        if field["kind"] == "number":
            arrays[field["name"]] = np.cumsum(random.normal(size=(tokens, field["width"])), 0).astype(np.float32) / 3
            if masked := field.get("masked"):
                arrays[field["name"]][:, masked : 2 * masked] = random.random((tokens, masked)) < 0.6
        elif field["kind"] == "bag":
            arrays[field["name"]] = random.integers(0, field["size"], (tokens, 3)).astype(np.int32)
        else:
            arrays[field["name"]] = random.integers(0, field["size"], tokens).astype(np.int32)
    labels = np.arange(rows) % 3
    static = {field["name"]: arrays.pop(field["name"]) for field in fields if field.get("static")}
    return Split(Ragged(offsets, arrays, static), labels, pa.array(map(str, range(rows))), np.arange(rows) + 1)


def same_buffers(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    mine, others = one.state_dict(), other.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(mine[name], others[name]) for name in mine)


def training_rows(split: Split) -> SplitRows:
    return SplitRows(split, "digest", np.ones(3))


def rows_of(fields: dict[str, list[np.ndarray]], labels: Any, classes: int, groups: Any = None) -> SplitRows:
    offsets = np.append(0, np.cumsum([len(ids) for ids in next(iter(fields.values()))]))
    arrays = {name: np.concatenate(values).astype(np.int32) for name, values in fields.items()}
    labels = np.asarray(labels)
    names = pa.array(map(str, range(len(labels))))
    split = Split(Ragged(offsets, arrays), labels, names, np.arange(len(labels)) + 1)
    return SplitRows(split if groups is None else split._replace(groups=groups), "digest", np.ones(classes))


def build(fields: list[dict[str, Any]], num_classes: int = 3, **options: Any) -> HeadsClassifier:
    return HeadsClassifier(fields, num_classes, HeadsConfig.of({**PLAIN, **options}))


@pytest.fixture(scope="session")
def fitted() -> Callable[..., HeadsClassifier]:
    """`fitted(fields, window=2, …)` returns a network in evaluation mode that is fitted to random rows."""

    def make(fields: list[dict[str, Any]], **options: Any) -> HeadsClassifier:
        torch.manual_seed(1)
        network = build(fields, **options)
        network.fit_to(training_rows(random_split(fields)))
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(0.2 * torch.randn_like(weight))
            network.weights.copy_(torch.rand(network.weights.shape))
        return network.eval()

    return make
