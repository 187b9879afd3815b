"""Held-out rows: the validation rows that set the threshold of a guarantee, and choose neither epoch nor settings."""

from __future__ import annotations

import numpy as np

from seqclf.data.splitting.assignment import assign

# Not the seed of the run: a search compares runs of different seeds, which must hold out the same rows.
SEED = 0


def holdout_rows(labels: np.ndarray, share: float, groups: np.ndarray | None = None) -> np.ndarray:
    """Return (N,) bool, True for held-out rows, with groups kept together. Equal arguments give equal rows."""
    shares = {"validation": 1 - share, "threshold": share}
    return assign(labels, shares, "random" if groups is None else "group", groups, SEED) == 1


def units_by_class(labels: np.ndarray, group: np.ndarray | None, classes: int) -> np.ndarray:
    """Return (C,) the units of each class that a recall guarantee counts: its rows, or the groups that have such rows.

    `labels`: (N,) class numbers. `group`: (N,) group numbers, None where each row stands alone.

    >>> units_by_class(np.array([0, 0, 1]), None, 3), units_by_class(np.array([0, 0, 1]), np.array([2, 2, 2]), 3)
    (array([2, 1, 0]), array([1, 1, 0]))
    """
    if group is not None:
        labels = np.unique(group * classes + labels) % classes  # one for each pair of group and class
    return np.bincount(labels, minlength=classes)
