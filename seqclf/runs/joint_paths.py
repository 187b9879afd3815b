"""Choice of the fitted wide paths that a model has, and of their scales, by training rows that their fits left out."""

from __future__ import annotations

import numpy as np
import torch

from seqclf.evaluation.choose_share import choose_parts, may_gain
from seqclf.wide.mixture import WideModel
from seqclf.wide.path import FittedPath, WidePath


class JointPaths:
    """The wide paths that training rows show to add something, judged by fits that left these rows out.

    Args:
        labels: (N,) class numbers of the training rows.
        group: (N,) group numbers, None where each row stands alone.
    """

    def __init__(self, labels: np.ndarray, group: np.ndarray | None):
        self.labels, self.group = labels, group
        self.paths: list[WidePath] = []
        self.scales: list[float] = []
        self.logits = np.zeros((len(labels), 0))  # held-out logits (N, C) of the paths so far

    def add(self, fitted: FittedPath) -> None:
        """Add a path if it is shown to add something, and drop those that it makes superfluous. See `choose_parts`."""
        path, held_out, _ = fitted
        if not self.paths:
            self.paths, self.scales, self.logits = [path], [1.0], held_out
            return
        rows, labels, group = self._judging(held_out)
        share, scale = choose_parts(held_out[rows], self.logits[rows], labels, group)
        if share == 1:
            return
        scale *= 1 - share
        if share == 0:  # the logits so far may be NaN in rows in which those of this path are not
            self.paths, self.scales, self.logits = [], [], np.zeros_like(self.logits)
        self.logits = share * self.logits + scale * held_out
        self.paths, self.scales = [*self.paths, path], [*(share * own for own in self.scales), scale]

    def may_gain(self, rows: np.ndarray, logits: np.ndarray) -> bool:
        """Return True if some rows (M,) show a gain by a path with the logits (M, C), however uncertain it is."""
        held_out = np.full_like(self.logits, np.nan)
        held_out[rows] = logits
        known, labels, group = self._judging(held_out)
        independent = len(self.labels) if self.group is None else len(np.unique(self.group))
        return may_gain(held_out[known], self.logits[known], labels, group, independent)

    def model(self, classes: int) -> WideModel:
        """Return the paths as one model."""
        model = WideModel(self.paths, classes)
        model.scales.copy_(torch.tensor(self.scales))
        return model

    def _judging(self, held_out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Return the rows that were held out from all fits, their labels and their groups."""
        rows = np.flatnonzero(np.isfinite(self.logits[:, 0]) & np.isfinite(held_out[:, 0]))
        return rows, self.labels[rows], None if self.group is None else self.group[rows]
