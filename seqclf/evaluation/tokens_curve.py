"""Accuracy against tokens read, for models that decide how much of a sequence they read. Pure numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject, JsonResult

# Halting scores that are tried: -log of the probability that a sequence was read further. 0 reads one token.
THRESHOLDS = np.concatenate([[0.0], np.geomspace(1e-3, 100.0, 120), [math.inf]])
TOLERATED_LOSS = 0.005  # of macro recall, at the knee
TOLERATED_SHARE = 0.05  # of what reading everything removes from the log loss, at the knee


@dataclass(frozen=True, kw_only=True)
class CurvePoint(JsonResult):
    """Scores where every sequence is read up to a `threshold` of its halting score, None to its end.

    `tokens`: share of all tokens that are read. `loss`: mean log loss of the labels.
    """

    threshold: float | None
    tokens: float
    recall: float
    accuracy: float
    loss: float


@dataclass(frozen=True, kw_only=True)
class TokensCurve(JsonResult):
    """Curves of a model, by split, and its operating point. Points go from few tokens to all, which is the last.

    `threshold`: of the operating point, the knee of the curve of validation (see `find_knee`), None to read everything.
    All curves have the same thresholds.

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

    def to_dict(self) -> JsonObject:
        splits = {split: [point.to_dict() for point in points] for split, points in self.splits.items()}
        return {"threshold": self.threshold, "splits": splits}

    @classmethod
    def of_splits(cls, splits: Mapping[str, Sequence[CurvePoint]]) -> TokensCurve:
        """Thin out the curves by split, and choose the operating point on validation."""
        validation = splits["validation"]
        # Of thresholds between which nothing changes, the one that reads to the end says so best.
        last_of_share = {point.tokens: index for index, point in enumerate(validation)}
        kept = {split: [points[index] for index in last_of_share.values()] for split, points in splits.items()}
        return cls(threshold=find_knee(kept["validation"]).threshold, splits=kept)

    @classmethod
    def from_manifest(cls, state: Mapping[str, Any]) -> TokensCurve:
        """Return the curve in a manifest, whose values were checked."""
        splits = {
            split: [CurvePoint(**{key: point[key] for key in POINT}) for point in points]
            for split, points in state["splits"].items()
        }
        return cls(threshold=state["threshold"], splits=splits)

    def point(self, split: str) -> CurvePoint:
        """Return the operating point on a split."""
        return next(point for point in self.splits[split] if point.threshold == self.threshold)

    def threshold_of(self, budget: float | None) -> float:
        """Return the threshold at which validation reads at most a share `budget` of the tokens, None for the knee.

        A budget below that of the first point gives the first point, as every sequence is read to some token. Raises
        InputError for a budget that is no share.
        """
        if budget is None:
            return math.inf if self.threshold is None else self.threshold
        if isinstance(budget, bool) or not isinstance(budget, Real):
            raise InputError(
                f"budget={budget!r}",
                f"is of type {type(budget).__name__}",
                "give a number, the share of tokens that may be read",
            )
        if not 0 < float(budget) <= 1:
            raise InputError(
                f"budget={budget}",
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
    """Return the point of fewest tokens that is nearly as good as reading everything.

    It loses at most `TOLERATED_LOSS` of macro recall, and keeps all but `TOLERATED_SHARE` of what reading removes from
    the log loss. Recall alone would say nothing where a rare class is never the most probable one, and little where
    validation has few rows.
    """
    first, end = points[0], points[-1]
    # Recalls that differ by the tolerance are computed with rounding errors.
    least, most = end.recall - TOLERATED_LOSS - 1e-9, end.loss + TOLERATED_SHARE * max(0.0, first.loss - end.loss)
    good = [point for point in points if point.recall >= least and point.loss <= most]
    return min([*good, end], key=lambda point: point.tokens)


class CurveCounts:
    """Counts of a split, batch by batch, for its curve. Memory does not grow with the rows."""

    def __init__(self, classes: int):
        self.correct = np.zeros((len(THRESHOLDS), classes), np.int64)
        self.loss = np.zeros(len(THRESHOLDS))
        self.rows = np.zeros(classes, np.int64)
        self.read = np.zeros(len(THRESHOLDS), np.int64)
        self.tokens = 0

    def update(self, logits: np.ndarray, read: np.ndarray, labels: np.ndarray, lengths: np.ndarray) -> None:
        """Add rows with logits (B, K, C) and tokens read (B, K) at each threshold."""
        is_correct = logits.argmax(axis=2) == labels[:, None]
        np.add.at(self.correct.T, labels, is_correct)
        shifted = logits - logits.max(axis=2, keepdims=True)
        of_label = np.take_along_axis(shifted, labels[:, None, None], axis=2)[..., 0]
        self.loss += (np.log(np.exp(shifted).sum(axis=2)) - of_label).sum(axis=0, dtype=np.float64)
        self.rows += np.bincount(labels, minlength=len(self.rows))
        self.read += read.sum(axis=0)
        self.tokens += int(lengths.sum())

    def points(self) -> list[CurvePoint]:
        """Return a point for each threshold."""
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
