"""Metrics of a part of a split: the rows in a range of lengths, or the truncated rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.evaluation.metrics import AlertMetrics, confusion_matrix, confusion_metrics, positive_metrics
from seqclf.system.json_result import JsonResult

BUCKETS = 5  # number of length buckets; more buckets would have too few rows for a stable recall


@dataclass(frozen=True, kw_only=True)
class SliceMetrics(JsonResult):
    """Metrics of a part of the rows of a split. `positive`: those of the positive label, or None."""

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"positive"})

    rows: int
    accuracy: float
    recall: float
    f1: float
    positive: AlertMetrics | None = None


@dataclass(frozen=True, kw_only=True)
class LengthSlice(SliceMetrics):
    """Metrics of the rows with `low` to `high` tokens (both included) before truncation."""

    low: int
    high: int


def length_buckets(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Return at most `BUCKETS` ranges of lengths, both ends included, with about equally many rows in each range.

    >>> length_buckets(np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 100]))
    [(1, 2), (3, 4), (5, 6), (7, 8), (9, 100)]
    """
    if not len(lengths):
        return []
    # `inverted_cdf` returns only lengths that occur in the data, so no bucket is empty. Buckets with the same upper end
    # are merged.
    inner = np.quantile(lengths, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf").astype(np.int64)
    ends = np.unique([*inner, lengths.max()])
    starts = [int(lengths.min()), *(ends[:-1] + 1).tolist()]
    return list(zip(starts, ends.tolist(), strict=True))


@dataclass(frozen=True)
class ScoredRows:
    """Labels and predictions of rows: (N,) class numbers, and (N, C) probabilities."""

    labels: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray
    classes: list[str]
    positive: str | None


def slices_by_length(predictions: ScoredRows, lengths: np.ndarray) -> list[LengthSlice]:
    """Return the metrics of each length bucket. `lengths`: (N,) number of tokens before truncation."""
    slices = []
    for low, high in length_buckets(lengths):
        inside = (lengths >= low) & (lengths <= high)
        slices.append(LengthSlice(low=low, high=high, **vars(slice_metrics(predictions, inside))))
    return slices


def slice_metrics(predictions: ScoredRows, rows: np.ndarray) -> SliceMetrics:
    """Return the metrics of the rows where `rows` (N,) is True."""
    labels, probabilities = predictions.labels[rows].astype(np.int64), predictions.probabilities[rows]
    confusion = confusion_matrix(labels, predictions.predicted[rows], len(predictions.classes))
    metrics = confusion_metrics(confusion, predictions.classes)
    positive = None
    if predictions.positive is not None:
        alerts = positive_metrics(labels, probabilities, confusion, predictions.classes, predictions.positive)
        positive = AlertMetrics(**{name: getattr(alerts, name) for name in AlertMetrics.__dataclass_fields__})
    return SliceMetrics(
        rows=int(rows.sum()), accuracy=metrics.accuracy, recall=metrics.recall, f1=metrics.f1, positive=positive
    )
