"""Wide path of boosted trees: small trees on pooled statistics of numbers and on counts of values.

Trees find what holds for several features together, such as a high mean of one channel where a value occurs often. The
sums of the other paths cannot tell that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.models.running_state import State
from seqclf.wide.boosting import LEAVES, Trees, fit_boosting, max_iterations, quick_look
from seqclf.wide.feature_path import read_rows
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.pooled_numbers import NumberPool

MAX_VALUES = 200  # size of a field whose values are counted; n-grams suit larger vocabularies
MAX_CLASSES = 30
MAX_WORK = 1_000_000_000  # rows * features * trees of a fit; six fits take about half a minute of a core
MIN_ROWS = 1_000  # rows that must be left of a larger split, so that the work is bounded


class BoostedTrees(WidePath):
    """Gradient boosting of trees with up to eight leaves, on features that ignore the order of the tokens.

    The features are the statistics of all number channels (see `NumberPool`), the log number of tokens, and how often
    each value of the category and bag fields occurs. Fields with many values are not read.

    Args:
        fields: Specs of the model's inputs.
        num_classes: Number of classes C.
        iterations: Number of trees of each class.
        width: Number K of trees of an iteration: 1 for two classes, else the number of classes in the training rows.
    """

    title = "boosted trees"
    reads_chunks = True
    feature: Tensor
    threshold: Tensor
    path: Tensor
    values: Tensor
    spread: Tensor
    bias: Tensor

    def __init__(self, fields: Sequence[FieldSpec], num_classes: int, *, iterations: int, width: int):
        super().__init__()
        self.features_of = _Features.of(fields)
        self.iterations, self.width = iterations, width
        trees = iterations * width
        self.register_buffer("feature", torch.zeros(trees, LEAVES - 1, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(trees, LEAVES - 1))
        self.register_buffer("path", torch.zeros(trees, LEAVES - 1, LEAVES))
        self.register_buffer("values", torch.zeros(trees, LEAVES))
        self.register_buffer("spread", torch.zeros(width, num_classes))
        self.register_buffer("bias", torch.zeros(num_classes))

    def settings(self) -> dict[str, Any]:
        """Return the numbers of iterations and of trees of each of them."""
        return {"iterations": self.iterations, "width": self.width}

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C) float32. See `WidePath.forward`."""
        return self.logits(self.features_of(fields, lengths))

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits (B, C) float32 of features (B, F) float32."""
        of_trees = torch.where(self.reached(features), self.values[:, None], 0).sum(dim=-1)
        scores = of_trees.reshape(self.iterations, self.width, -1).double().sum(dim=0)
        return (scores.T @ self.spread.double() + self.bias.double()).float()

    def reached(self, features: Tensor) -> Tensor:
        """Return True for the leaf of each tree that each row reaches, (trees, B, leaves), and for leaves not in use.

        `features`: (B, F).
        """
        goes_left = features[:, self.feature.flatten()] <= self.threshold.flatten()
        turns = torch.where(goes_left, 1.0, -1.0).reshape(-1, *self.feature.shape)
        # The path to the leaf makes the same turn at every node that it meets.
        same_turns = torch.bmm(turns.transpose(0, 1), self.path)
        return same_turns == self.path.abs().sum(dim=1, keepdim=True)

    def chunk_states(self) -> list[State]:
        """Return the statistics and the counts of the tokens so far."""
        return self.features_of.states()

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. See `WidePath.step`."""
        features, new_states = self.features_of.step(fields, lengths, states)
        return self.logits(features), new_states

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True if there are numbers, or fields of few values."""
        return bool(_Features.of(fields).names)

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit trees to training rows, a sample of them where they are many. See `WidePath.fit`."""
        drawn = _draw(train, fields, num_classes, seed)
        if drawn is None:
            return None
        rows, labels, groups, features = drawn
        trees, found = fit_boosting(features, labels, groups, num_classes, seed)
        width = len(trees.spread)
        path = cls(fields, num_classes, iterations=len(trees.feature) // width, width=width)
        path._fill(trees)
        held_out = np.full((len(train.labels), num_classes), np.nan)
        held_out[rows] = found
        if len(rows) < len(train.labels):
            path.notes = [f"fitted to {len(rows):,} of {len(train.labels):,} training rows"]
            return FittedPath(path, held_out)
        with torch.inference_mode():
            return FittedPath(path, held_out, path.logits(torch.from_numpy(features)).numpy())

    @classmethod
    def quick_look(
        cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the logits of the first of the folds, by a twelfth of the work. See `WidePath.quick_look`."""
        drawn = _draw(train, fields, num_classes, seed)
        if drawn is None:
            return None
        rows, labels, groups, features = drawn
        out, logits = quick_look(features, labels, groups, num_classes, seed)
        return rows[out], logits

    def _fill(self, trees: Trees) -> None:
        for name, values in trees._asdict().items():
            self.get_buffer(name).copy_(torch.from_numpy(values))


@dataclass(frozen=True)
class _Features:
    """Features of rows: statistics of numbers, the log number of tokens, and counts of values.

    `pool`: the statistics, None without number fields. `counted`: name and size of each field whose values are counted.
    """

    pool: NumberPool | None
    counted: list[tuple[str, int]]

    @classmethod
    def of(cls, fields: Iterable[FieldSpec]) -> _Features:
        pool = NumberPool(fields)
        sizes = [(field["name"], field["size"]) for field in fields if field["kind"] in ("category", "bag")]
        return cls(pool if pool.width else None, [(name, size) for name, size in sizes if size <= MAX_VALUES])

    @property
    def names(self) -> list[str]:
        return [*(self.pool.names if self.pool else []), *(name for name, _ in self.counted)]

    @property
    def size(self) -> int:
        return (self.pool.size if self.pool else 1) + sum(size for _, size in self.counted)

    def __call__(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float32."""
        statistics = self.pool(fields, lengths).columns() if self.pool else _log(lengths[:, None])
        return torch.cat([statistics.float(), *self._counts(fields, lengths)], dim=1)

    def states(self) -> list[State]:
        pooled = self.pool.states() if self.pool else [State("tokens", (1,))]
        return [*pooled, *(State(f"counts{place}", (size,)) for place, (_, size) in enumerate(self.counted))]

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the features (B, F) of the tokens of `states` and of a chunk, and the new states."""
        first = len(states) - len(self.counted)
        if self.pool:
            pooled = self.pool.add_chunk(states[:first], fields, lengths)
            statistics, new_states = pooled.columns(), [state.float() for state in pooled]
        else:
            new_states = [states[0] + lengths[:, None]]
            statistics = _log(new_states[0])
        added = self._counts(fields, lengths)
        counts = [before + now for before, now in zip(states[first:], added, strict=True)]
        return torch.cat([statistics.float(), *counts], dim=1), [*new_states, *counts]

    def _counts(self, fields: Mapping[str, Tensor], lengths: Tensor) -> list[Tensor]:
        """Return the number of tokens with each value, (B, size) float32 for each counted field."""
        counts = []
        for name, size in self.counted:
            ids = fields[name].long()
            valid = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
            if ids.dim() == 3:  # bags are padded with 0
                valid = (valid[:, :, None] & (ids > 0)).flatten(1)
                ids = ids.flatten(1)
            ids = torch.where(valid, ids, 0)
            counts.append(torch.zeros(ids.shape[0], size, device=ids.device).scatter_add(1, ids, valid.float()))
        return counts


def _log(tokens: Tensor) -> Tensor:
    return tokens.clamp(min=1).double().log()


def _draw(
    train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray] | None:
    """Return the rows (M,) that trees are fitted to, their labels and groups, and their features (M, F).

    Returns None if there can be no trees: with one class or many, or if the work leaves too few rows.
    """
    features = _Features.of(fields)
    work = features.size * max_iterations(num_classes) * (1 if num_classes == 2 else num_classes)
    most = MAX_WORK // work
    count = len(train.labels)
    if num_classes > MAX_CLASSES or most < min(count, MIN_ROWS):
        return None
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:most])
    labels = np.asarray(train.labels)[rows]
    if len(np.unique(labels)) < 2:
        return None
    sequences = Ragged(train.sequences.offsets, {name: train.sequences.fields[name] for name in features.names})
    with torch.inference_mode():
        values = read_rows(features, sequences, rows, features.size).numpy()
    return rows, labels, None if train.groups is None else train.groups[rows], values
