"""Folds of training rows, each of which is left out of one fit."""

from __future__ import annotations

import numpy as np


def draw_folds(rows: int, groups: np.ndarray | None, folds: int, seed: int) -> np.ndarray:
    """Return the fold (N,) of each row, 0 … `folds` - 1. `groups`: (N,) rows of one group are in one fold.

    >>> draw_folds(6, np.array(["a", "a", "b", "b", "c", "c"]), 3, seed=0)
    array([2, 2, 0, 0, 1, 1])
    """
    unit = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(unit.max()) + 1
    return np.random.default_rng(seed).permutation(count)[unit] * folds // count
