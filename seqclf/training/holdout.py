"""Validation rows kept apart for the threshold of a promise, so that they choose neither the epoch nor the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.splitting.assignment import assign
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import Split, subset
from seqclf.evaluation.decision import uses_holdout

# Not the seed of the run: runs of other seeds, which a search compares, must keep the same rows apart.
SEED = 0


def hold_out(dataset: Dataset, settings: Mapping[str, Any], rule: str) -> tuple[Dataset, Split | None]:
    """The dataset without the validation rows that are kept apart, and those rows. `settings`: of conf/decision.

    They are a stratified share; the only row of a class stays in validation. Of each group that `data.split.by` keeps
    together, one row is kept apart and the others are used for nothing: rows of a group are not independent, and a
    promise counts independent ones. None where the rule promises nothing or the share is 0. A provisional decision
    (`settings["provisional"]`) leaves the same rows out, and unseen.
    """
    if not uses_holdout({**settings, "provisional": False}, rule):
        return dataset, None
    validation = dataset.splits["validation"]
    parts = holdout_rows(validation.labels, settings["holdout"], validation.groups)
    kept = subset(validation, np.flatnonzero(~parts))
    rows = np.flatnonzero(parts)
    if validation.groups is not None:
        rows = one_of_each(rows, validation.groups)
    apart = None if settings["provisional"] else subset(validation, rows)
    return replace(dataset, splits={**dataset.splits, "validation": kept}), apart


def holdout_rows(labels: np.ndarray, share: float, groups: np.ndarray | None = None) -> np.ndarray:
    """Which rows are kept apart, those of one group together: (N,) bool. The same for the same arguments."""
    shares = {"validation": 1 - share, "threshold": share}
    return assign(labels, shares, "random" if groups is None else "group", groups, SEED) == 1


def one_of_each(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """A random row of each group among `rows`, ascending."""
    shuffled = np.random.default_rng(SEED).permutation(rows)
    _, first = np.unique(groups[shuffled], return_index=True)
    return np.sort(shuffled[first])
