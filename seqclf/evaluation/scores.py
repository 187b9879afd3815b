"""Scores of models: what a model says about the rows of each split, from whatever tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.decision import HELD_OUT, Decision
from seqclf.evaluation.design_effect import group_codes

if TYPE_CHECKING:
    import pyarrow as pa

ROLES = NETWORK, HEAD, ORDER_BLIND = "network", "head", "order_blind"
FILE_SPLITS = (*SPLITS, THRESHOLD)  # names of splits, in the order in which they are judged


class ScoredRows(NamedTuple):
    """Rows of a split with the outputs of a model.

    `logits`: (N, C). `labels`: (N,) int64 class numbers. `lengths`: (N,) int64 tokens before truncation. `truncated`:
    (N,) bool. `groups`: (N,) keys, equal for rows of one group, None for independent rows. `group_names`: (N,) values
    of `data.group`, null for a row without a group, None if equal sequences form the groups. `ids`: (N,) strings or
    None. `only_probabilities`: (N, C) of a model without logits. `positions`: (N,) in the split of the data set, None
    if unknown. `fold`: (N,) int64 part of each row, if the threshold of a part is set by the others. `by_folds`: (N,)
    int64 class numbers at the threshold of each part, None for the threshold of all rows. `extra`: dict name of another
    output (see `SequenceNetwork.extra_outputs`) → (N,) or (N, D). `weights`, `costs`: (N,) float64 of `data.weight` and
    `data.cost`, or None.
    """

    logits: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    groups: np.ndarray | None = None
    group_names: pa.Array | None = None
    ids: pa.Array | None = None
    only_probabilities: np.ndarray | None = None
    positions: np.ndarray | None = None
    fold: np.ndarray | None = None
    by_folds: np.ndarray | None = None
    extra: Mapping[str, np.ndarray] = MappingProxyType({})
    weights: np.ndarray | None = None
    costs: np.ndarray | None = None

    @classmethod
    def of_split(
        cls, rows: Split, logits: np.ndarray | None, probabilities: np.ndarray | None = None, **columns: Any
    ) -> ScoredRows:
        """Return the outputs of a model for the rows of a split: logits (N, C), or probabilities (N, C).

        `columns`: other columns, such as `positions` of some rows in a split.
        """
        if logits is None:
            assert probabilities is not None, "one of the two"
            logits = log(probabilities)
        known = {
            "groups": rows.groups,
            "group_names": rows.group_names,
            "ids": rows.ids,
            "only_probabilities": probabilities,
            "positions": np.arange(len(rows.labels)),
            "weights": rows.weights,
            "costs": rows.costs,
        }
        lengths = rows.lengths_before_truncation
        return cls(logits, rows.labels, lengths, lengths > rows.sequences.lengths, **{**known, **columns})

    def probabilities(self, decision: Decision | None = None) -> np.ndarray:
        """Return the probabilities (N, C), divided by the temperature of a decision."""
        if decision is not None:
            return decision.probabilities(self.logits)
        return softmax(self.logits) if self.only_probabilities is None else self.only_probabilities

    def predicted(self, decision: Decision | None = None) -> np.ndarray:
        """Return the predicted class numbers (N,): `by_folds`, or those of a decision, or the most probable ones."""
        if decision is None:
            return self.probabilities().argmax(axis=1)
        return decision.choose(self.logits) if self.by_folds is None else self.by_folds

    @property
    def group(self) -> np.ndarray | None:
        """Codes (N,) of the groups, None if rows are independent."""
        return group_codes(self.groups)

    @property
    def unit(self) -> str:
        """Name of a group of rows (see `Guarantee`)."""
        return "sequence" if self.group_names is None else "group"

    def take(self, rows: np.ndarray) -> ScoredRows:
        """Return some rows: (M,) positions."""
        found: dict[str, Any] = {}
        for name, values in self._asdict().items():
            if isinstance(values, Mapping):
                found[name] = {key: part[rows] for key, part in values.items()}
            elif isinstance(values, np.ndarray):
                found[name] = values[rows]
            elif values is not None:
                found[name] = values.take(rows)
        return self._replace(**found)


def log(probabilities: np.ndarray) -> np.ndarray:
    """Return logits (N, C) of probabilities (N, C)."""
    return np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).tiny))


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Outputs of a model for the rows of some splits (dict split → rows), in the order of a data set.

    `role`: one of `ROLES`. `name`: among the models of a run. `model`: kind, such as "LSTM". `label_type`: type of the
    labels in the data. `positive`: label that matters, or None. `basis`: kind of the rows that set thresholds (see
    `Guarantee`).
    """

    role: str
    name: str
    model: str
    classes: list[str]
    label_type: str
    positive: str | None
    splits: Mapping[str, ScoredRows]
    basis: str = HELD_OUT

    @property
    def threshold_split(self) -> str:
        """Split whose rows set thresholds and the temperature: `threshold`, the first one with folds, or validation."""
        folds = [split for split, rows in self.splits.items() if rows.fold is not None and split != "train"]
        return next((split for split in (THRESHOLD, *folds) if split in self.splits), "validation")

    @property
    def threshold_rows(self) -> ScoredRows | None:
        """Rows that set thresholds and the temperature, None if they have no scores."""
        return self.splits.get(self.threshold_split)

    @property
    def held_out(self) -> dict[str, ScoredRows]:
        """Held-out rows, under `THRESHOLD`: none if validation rows with a fold set thresholds."""
        rows = self.splits.get(THRESHOLD)
        return {} if rows is None or rows.fold is not None else {THRESHOLD: rows}


def network_of(models: Sequence[Scores]) -> Scores:
    """Return the scores of the network among those of several models."""
    return next(scores for scores in models if scores.role == NETWORK)


def completed(scores: Scores, against: Scores) -> Scores:
    """Return scores with groups, weights, lengths and truncation of others for the same rows, where they lack them."""
    splits = dict(scores.splits)
    for split, rows in splits.items():
        if split in against.splits:
            known = against.splits[split].take(positions_in(scores, against, split))
            if rows.groups is None:
                rows = rows._replace(groups=known.groups, group_names=known.group_names)
            if not rows.lengths.any():
                rows = rows._replace(lengths=known.lengths, truncated=known.truncated)
            if rows.weights is None:
                rows = rows._replace(weights=known.weights)
            splits[split] = rows
    return replace(scores, splits=splits)


def positions_in(part: Scores, whole: Scores, split: str) -> np.ndarray:
    """Return the positions (M,) of the rows of `part` in a split of `whole`, by positions of the data set, or else by
    ids.

    Raises InputError for rows that `whole` lacks, for ids that repeat, and for rows that have another label.
    """
    some, all_rows = part.splits[split], whole.splits[split]
    if some.positions is not None and all_rows.positions is not None:
        order = np.argsort(all_rows.positions, kind="stable")
        places = np.searchsorted(all_rows.positions, some.positions, sorter=order)
        positions = order[np.minimum(places, len(order) - 1)]
        is_same = all_rows.positions[positions] == some.positions
    elif some.ids is not None and all_rows.ids is not None and some.ids.equals(all_rows.ids):  # ids may repeat
        positions, is_same = np.arange(len(some.ids)), np.ones(len(some.ids), bool)
    else:
        assert some.ids is not None and all_rows.ids is not None, "rows of a file"
        for ids in (some.ids, all_rows.ids):
            if pc.count_distinct(ids).as_py() < len(ids):
                raise InputError(f"split {split}", "has ids that repeat, by which no rows can be matched")
        positions = np.array(pc.fill_null(pc.index_in(some.ids, value_set=all_rows.ids), -1)).astype(np.int64)
        is_same = positions >= 0
    if not is_same.all():
        place = int(np.argmin(is_same))
        row = place + 1 if some.ids is None else some.ids[place].as_py()
        raise InputError(f"split {split}", f"row {row} is in one file of scores only", "score the same rows")
    other_ids = some.ids is not None and all_rows.ids is not None and not some.ids.equals(all_rows.ids.take(positions))
    if other_ids or (some.labels != all_rows.labels[positions]).any():
        raise InputError(f"split {split}", "has other labels or ids in two files of scores", "score the same rows")
    return positions


def rows_like(scores: Scores, whole: Scores, split: str) -> ScoredRows:
    """Return the rows of a model in the order of all rows of a split of `whole`. Raises InputError if it lacks some."""
    positions = positions_in(scores, whole, split)
    if not np.array_equal(np.sort(positions), np.arange(len(whole.splits[split].labels))):
        raise InputError(f"scores of {scores.name}", f"lack rows of {split}, or repeat them", "score the same rows")
    return scores.splits[split].take(np.argsort(positions))
