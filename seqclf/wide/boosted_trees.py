"""Wide path of boosted trees: small trees on statistics of numbers, on counts of values, and on both together.

Trees find what holds for several features together, such as a high mean of one channel where a value occurs often. The
sums of the other paths cannot tell that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.models.running_state import State
from seqclf.wide.boosting import FOLDS, LEAVES, Trees, fit_boosting, max_iterations, quick_look
from seqclf.wide.feature_path import read_rows
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.row_features import RowFeatures

MAX_CLASSES = 30
MAX_WORK = 1_000_000_000  # rows * features * trees of a fit; six fits take about half a minute of a core
MIN_ROWS = 1_000  # rows that must be left of a larger split, so that the work is bounded
MAX_LOOKS, JUDGED_ROWS = 3, 1_000  # folds that judge a block of features: as many as leave out so many rows


class BoostedTrees(WidePath):
    """Gradient boosting of trees with up to eight leaves, on features of a row.

    See `RowFeatures` for the features. Those of the order of the tokens are read where left-out training rows gain.

    Args:
        fields: Specs of the model's inputs.
        num_classes: Number of classes C.
        iterations: Number of trees of each class.
        width: Number K of trees of an iteration: 1 for two classes, else the number of classes in the training rows.
        blocks: Names of the blocks of features of the order of the tokens that are read, see `RowFeatures`.
    """

    title = "boosted trees"
    reads_chunks = True
    feature: Tensor
    threshold: Tensor
    path: Tensor
    values: Tensor
    spread: Tensor
    bias: Tensor

    def __init__(
        self, fields: Sequence[FieldSpec], num_classes: int, *, iterations: int, width: int, blocks: Sequence[str] = ()
    ):
        super().__init__()
        self.features_of = RowFeatures(fields, blocks)
        self.iterations, self.width = iterations, width
        trees = iterations * width
        self.register_buffer("feature", torch.zeros(trees, LEAVES - 1, dtype=torch.int64))
        self.register_buffer("threshold", torch.zeros(trees, LEAVES - 1))
        self.register_buffer("path", torch.zeros(trees, LEAVES - 1, LEAVES))
        self.register_buffer("values", torch.zeros(trees, LEAVES))
        self.register_buffer("spread", torch.zeros(width, num_classes))
        self.register_buffer("bias", torch.zeros(num_classes))

    def settings(self) -> dict[str, Any]:
        """Return the numbers of iterations and of trees of each of them, and the blocks of features."""
        blocks = [block.name for block in self.features_of.blocks]
        return {"iterations": self.iterations, "width": self.width, "blocks": blocks}

    def index_limits(self) -> dict[str, int]:
        """Return the buffer of the features at the nodes. See `WidePath.index_limits`."""
        return {"feature": self.features_of.size}

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
        """Return what the features need of the tokens so far."""
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
        return bool(RowFeatures(fields).names)

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit trees to training rows, a sample of them where they are many. See `WidePath.fit`."""
        drawn = _draw(train, fields, num_classes, seed)
        if drawn is not None and drawn.reader.blocks:
            blocks = _choose_blocks(drawn, num_classes, seed, MAX_LOOKS).blocks
            if len(blocks) < len(drawn.reader.blocks):
                drawn = _read(train, RowFeatures(fields, blocks), num_classes, seed)
        if drawn is None:
            return None
        rows, labels, groups, features, reader = drawn
        trees, found = fit_boosting(features, labels, groups, num_classes, seed)
        width = len(trees.spread)
        path = cls(
            fields, num_classes, iterations=len(trees.feature) // width, width=width, blocks=list(reader.block_sizes)
        )
        path._fill(trees)
        path.features_of.load_state_dict(reader.state_dict())
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
        """Return the logits of the first of the folds, by a fifth of the work. See `WidePath.quick_look`."""
        drawn = _draw(train, fields, num_classes, seed)
        if drawn is None:
            return None
        look = _choose_blocks(drawn, num_classes, seed, 1)
        return drawn.rows[look.out], look.logits

    def _fill(self, trees: Trees) -> None:
        for name, values in trees._asdict().items():
            self.get_buffer(name).copy_(torch.from_numpy(values))


class _Drawn(NamedTuple):
    """M rows that trees are fitted to: their numbers, labels, groups and features (M, F), and what reads these."""

    rows: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None
    features: np.ndarray
    reader: RowFeatures


class _Look(NamedTuple):
    """Blocks that are read, and the logits (M, C) of the rows (M,) that the first of the looks leaves out, with them.

    `losses`: log loss of each row that a look leaves out.
    """

    blocks: list[str]
    out: np.ndarray
    logits: np.ndarray
    losses: np.ndarray


def _draw(train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> _Drawn | None:
    """Return rows of `train`, all or a sample, with the features of all blocks, or of none where rows are too many.

    Returns None if there can be no trees: with one class or many, or if the work leaves too few rows.
    """
    offered = _read(train, RowFeatures(fields), num_classes, seed)
    return offered or _read(train, RowFeatures(fields, []), num_classes, seed)


def _read(train: Split, reader: RowFeatures, num_classes: int, seed: int) -> _Drawn | None:
    """Return the features of rows of `train`. The rows of a reader of more features are among those of fewer."""
    work = reader.size * max_iterations(num_classes) * (1 if num_classes == 2 else num_classes)
    most = MAX_WORK // work
    count = len(train.labels)
    if num_classes > MAX_CLASSES or most < min(count, MIN_ROWS):
        return None
    rows = np.sort(np.random.default_rng(seed).permutation(count)[:most])
    labels = np.asarray(train.labels)[rows]
    if len(np.unique(labels)) < 2:
        return None
    sequences = Ragged(train.sequences.offsets, {name: train.sequences.fields[name] for name in reader.names})
    with torch.inference_mode():
        reader.choose_levels(sequences, rows, seed)
        features = read_rows(reader, sequences, rows, reader.size).numpy()
    return _Drawn(rows, labels, None if train.groups is None else train.groups[rows], features, reader)


def _choose_blocks(drawn: _Drawn, num_classes: int, seed: int, looks: int) -> _Look:
    """Choose the blocks of features of the order that lower the log loss of left-out rows, by more than one error.

    Features that tell nothing cost small sets accuracy. `looks`: divisions of the rows, in each of which a fold is left
    out. Fewer are made where fewer leave out `JUDGED_ROWS` rows.
    """
    looks = min(looks, max(1, FOLDS * JUDGED_ROWS // len(drawn.rows)))
    start = drawn.reader.unordered
    columns = np.arange(start)
    best = _leave_out(drawn, [], columns, num_classes, seed, looks)
    for name, size in drawn.reader.block_sizes.items():
        more = np.append(columns, np.arange(start, start + size))
        start += size
        found = _leave_out(drawn, [*best.blocks, name], more, num_classes, seed, looks)
        gain = best.losses - found.losses
        if len(gain) and gain.mean() > gain.std() / np.sqrt(len(gain)):
            best, columns = found, more
    return best


def _leave_out(drawn: _Drawn, blocks: list[str], columns: np.ndarray, num_classes: int, seed: int, looks: int) -> _Look:
    """Fit trees on the columns of some blocks to all rows but those that a look leaves out."""
    from scipy.special import logsumexp

    found = [
        quick_look(drawn.features[:, columns], drawn.labels, drawn.groups, num_classes, seed + number)
        for number in range(looks)
    ]
    losses = [logsumexp(logits, axis=1) - logits[np.arange(len(out)), drawn.labels[out]] for out, logits in found]
    return _Look(blocks, *found[0], np.concatenate(losses))
