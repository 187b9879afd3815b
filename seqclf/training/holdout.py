"""Holdout: validation rows for the threshold of a guarantee, used for neither the epoch nor the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.splitting.assignment import assign
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Split, subset
from seqclf.evaluation.decision import uses_holdout

# Not the seed of the run: a search compares runs of different seeds, which must hold out the same rows.
SEED = 0


def hold_out(dataset: Dataset, settings: Mapping[str, Any], rule: str) -> tuple[Dataset, Split | None]:
    """Return the dataset without the validation rows that are held out, and those rows.

    `settings`: of conf/decision. `rule`: the decision rule. The rows are a stratified share, and the only row of a
    class stays in validation. A group that `data.split.by` keeps together contributes one row, and its other rows are
    not used: a guarantee counts independent rows, and those of a group are not. The rows are None if the rule
    guarantees nothing or the share is 0. They are None for a provisional decision (`settings["provisional"]`) too,
    which leaves the same rows out of validation but does not see them.
    """
    if not uses_holdout({**settings, "provisional": False}, rule):
        return dataset, None
    validation = dataset.splits["validation"]
    held_out = holdout_rows(validation.labels, settings["holdout"], validation.groups)
    remaining = subset(validation, np.flatnonzero(~held_out))
    rows = np.flatnonzero(held_out)
    if validation.groups is not None:
        rows = one_of_each(rows, validation.groups)
    holdout = None if settings["provisional"] else subset(validation, rows)
    return replace(dataset, splits={**dataset.splits, "validation": remaining}), holdout


def holdout_rows(labels: np.ndarray, share: float, groups: np.ndarray | None = None) -> np.ndarray:
    """Return (N,) bool, True for held-out rows, with groups kept together. Equal arguments give equal rows."""
    shares = {"validation": 1 - share, "threshold": share}
    return assign(labels, shares, "random" if groups is None else "group", groups, SEED) == 1


def one_of_each(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return a random row of each group among `rows`, ascending."""
    shuffled = np.random.default_rng(SEED).permutation(rows)
    _, first = np.unique(groups[shuffled], return_index=True)
    return np.sort(shuffled[first])
