"""Accuracy as a function of the tokens read, for models that may halt before the end of a sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from seqclf.errors import InputError
from seqclf.system.json_result import JsonResult

# Thresholds of the halting score at which the curve has points. The halting score is -log of the probability that the
# model has not halted yet. At the threshold 0, only one token is read.
THRESHOLDS = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 120), [math.inf]])
TOLERATED_LOSS = 0.005  # the operating point may lose this much macro recall
# The operating point may lose this fraction of the decrease in log loss that reading all tokens brings.
TOLERATED_SHARE = 0.05


@dataclass(frozen=True, kw_only=True)
class CurvePoint(JsonResult):
    """Scores of a model that stops reading a sequence when the halting score reaches a threshold.

    `threshold`: None if every sequence is read to its end. `tokens`: fraction of all tokens that is read. `loss`: mean
    log loss.
    """

    threshold: float | None
    tokens: float
    recall: float
    accuracy: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class TokensCurve(JsonResult):
    """Curves of scores against tokens read, and the recommended operating point.

    `splits`: dict split → points of its curve, from few tokens to all, at the same thresholds. `threshold`: that of the
    operating point, the knee of the validation curve (see `find_knee`), None if all tokens are read.

    >>> points = [
    ...     CurvePoint(threshold=0.1, tokens=0.25, recall=0.5, accuracy=0.6, loss=1.0),
    ...     CurvePoint(threshold=0.7, tokens=0.5, recall=0.898, accuracy=0.9, loss=0.32),
    ...     CurvePoint(threshold=None, tokens=1.0, recall=0.9, accuracy=0.9, loss=0.3),
    ... ]
    >>> curve = TokensCurve.of_splits({"validation": points})
    >>> curve.threshold, curve.threshold_of(0.4), curve.threshold_of(1.0)
    (0.7, 0.1, inf)
    """

    threshold: float | None
    splits: Mapping[str, Sequence[CurvePoint]]

    @classmethod
    def of_splits(cls, splits: Mapping[str, Sequence[CurvePoint]]) -> TokensCurve:
        """Return the curves without points of equal token counts, and the operating point of validation."""
        validation = splits["validation"]
        # If several thresholds read the same number of tokens, keep the last of them, so that the last point keeps the
        # threshold None.
        last_of_share = {point.tokens: index for index, point in enumerate(validation)}
        kept = {split: [points[index] for index in last_of_share.values()] for split, points in splits.items()}
        return cls(threshold=find_knee(kept["validation"]).threshold, splits=kept)

    @classmethod
    def from_manifest(cls, state: Mapping[str, Any]) -> TokensCurve:
        """Return the curves of a manifest, whose values have already been checked."""
        splits = {
            split: [CurvePoint(**{key: point[key] for key in POINT}) for point in points]
            for split, points in state["splits"].items()
        }
        return cls(threshold=state["threshold"], splits=splits)

    def point(self, split: str) -> CurvePoint:
        """Return the operating point on the curve of a split."""
        return next(point for point in self.splits[split] if point.threshold == self.threshold)

    def threshold_of(self, budget: float | None) -> float:
        """Return the threshold at which the model reads at most a fraction `budget` of the validation tokens.

        None gives the operating point. Below the first point, its threshold is returned, because at least one token of
        every sequence is read. Raises InputError for a budget that is not a fraction.
        """
        if budget is None:
            return math.inf if self.threshold is None else self.threshold
        if isinstance(budget, bool) or not isinstance(budget, Real) or not 0 < float(budget) <= 1:
            raise InputError(
                f"budget={budget!r}",
                "must be above 0 and at most 1, the share of tokens that may be read",
                "null reads as many as the bundle recommends",
            )
        if budget == 1:
            return math.inf
        if "validation" not in self.splits:
            raise InputError(
                f"budget={budget}",
                "the bundle was exported without the metrics of its run, which hold the curve of tokens read",
                "set budget=1 or null, or export the checkpoint inside of its run folder",
            )
        points = self.splits["validation"]
        within = [point for point in points if point.tokens <= budget] or [points[0]]
        threshold = max(within, key=lambda point: point.tokens).threshold
        return math.inf if threshold is None else threshold


POINT = tuple(CurvePoint.__dataclass_fields__)


def find_knee(points: Sequence[CurvePoint]) -> CurvePoint:
    """Return the point with the fewest tokens that is nearly as good as reading all tokens.

    Its macro recall is at most `TOLERATED_LOSS` lower, and it loses at most a fraction `TOLERATED_SHARE` of what
    reading all tokens gains in log loss over the first point. Recall alone ignores a rare class that is never the most
    probable one, and is imprecise for few rows.
    """
    first, end = points[0], points[-1]
    # 1e-9 allows for rounding errors if recalls differ by exactly the tolerance.
    least, most = end.recall - TOLERATED_LOSS - 1e-9, end.loss + TOLERATED_SHARE * max(0.0, first.loss - end.loss)
    good = [point for point in points if point.recall >= least and point.loss <= most]
    return min([*good, end], key=lambda point: point.tokens)


class CurveCounts:
    """Counts from which the curve of a split is computed, batch by batch, in constant memory."""

    def __init__(self, classes: int):
        self.correct = np.zeros((len(THRESHOLDS), classes), np.int64)
        self.loss = np.zeros(len(THRESHOLDS))
        self.rows = np.zeros(classes, np.int64)
        self.read = np.zeros(len(THRESHOLDS), np.int64)
        self.tokens = 0

    def update(self, logits: np.ndarray, read: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> None:
        """Add a batch. `logits`: (B, K, C) at each of K thresholds. `read`: (B, K) tokens read at each threshold."""
        is_correct = logits.argmax(axis=2) == labels[:, None]
        np.add.at(self.correct.T, labels, is_correct)
        shifted = logits - logits.max(axis=2, keepdims=True)
        of_label = np.take_along_axis(shifted, labels[:, None, None], axis=2)[..., 0]
        self.loss += (np.log(np.exp(shifted).sum(axis=2)) - of_label).sum(axis=0, dtype=np.float64)
        self.rows += np.bincount(labels, minlength=len(self.rows))
        self.read += read.sum(axis=0)
        self.tokens += int(lengths.sum())

    def points(self) -> list[CurvePoint]:
        """Return the points of the curve, one point for each threshold."""
        present = self.rows > 0
        recall = (self.correct[:, present] / self.rows[present]).mean(axis=1)
        accuracy = self.correct.sum(axis=1) / self.rows.sum()
        loss = np.maximum(self.loss, 0.0) / self.rows.sum()
        share = self.read / self.tokens
        return [
            CurvePoint(
                threshold=float(threshold) if math.isfinite(threshold) else None,
                tokens=float(share[index]),
                recall=float(recall[index]),
                accuracy=float(accuracy[index]),
                loss=float(loss[index]),
            )
            for index, threshold in enumerate(THRESHOLDS)
        ]
