"""Validation rows kept apart for the threshold of a promise, so that they choose neither the epoch nor the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from seqclf.data.dataset import Dataset
from seqclf.data.splits import assign
from seqclf.data.store import Split, subset
from seqclf.learning.decisions import keeps_apart

# Not the seed of the run: runs of other seeds, which a search compares, must keep the same rows apart.
SEED = 0


def keep_apart(dataset: Dataset, settings: Mapping[str, Any], rule: str) -> tuple[Dataset, Split | None]:
    """The dataset without the validation rows that are kept apart, and those rows. `settings`: of conf/decision.

    They are a stratified share; the only row of a class stays in validation. None where the rule promises nothing or
    the share is 0. A provisional decision (`settings["provisional"]`) leaves the same rows out, and unseen.
    """
    if not keeps_apart({**settings, "provisional": False}, rule):
        return dataset, None
    validation = dataset.splits["validation"]
    parts = holdout_rows(validation.labels, settings["holdout"])
    kept = subset(validation, np.flatnonzero(~parts))
    apart = None if settings["provisional"] else subset(validation, np.flatnonzero(parts))
    return replace(dataset, splits={**dataset.splits, "validation": kept}), apart


def holdout_rows(labels: np.ndarray, share: float) -> np.ndarray:
    """Which rows are kept apart: (N,) bool. The same for the same labels (N,) and share."""
    shares = {"validation": 1 - share, "threshold": share}
    return assign(labels, shares, "random", None, SEED) == 1
