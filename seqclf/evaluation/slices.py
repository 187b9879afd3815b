"""Scores of parts of a split: by length, and of the rows that were cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqclf.evaluation.metrics import confusion_matrix, confusion_metrics, positive_metrics

BUCKETS = 5


def length_buckets(lengths: np.ndarray) -> list[tuple[int, int]]:
    """At most `BUCKETS` ranges of lengths, both ends included, with about the same number of rows in each."""
    if not len(lengths):
        return []
    inner = np.quantile(lengths, np.arange(1, BUCKETS) / BUCKETS, method="inverted_cdf").astype(np.int64)
    ends = np.unique([*inner, lengths.max()])
    starts = [int(lengths.min()), *(ends[:-1] + 1).tolist()]
    return list(zip(starts, ends.tolist(), strict=True))


def slice_scores(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    lengths: np.ndarray,
    truncated: np.ndarray,
    classes: list[str],
    positive: str | None,
) -> dict[str, Any]:
    """`by_length`: for each of the buckets of `lengths` (N,), which are those before anything was cut, its ends and its
    scores; `truncated`: those of the rows that were cut (N,) bool, None if there are none."""

    def own(rows: np.ndarray) -> dict[str, Any]:
        confusion = confusion_matrix(labels[rows].astype(np.int64), predicted[rows], len(classes))
        found = confusion_metrics(confusion, classes)
        kept = {"rows": int(rows.sum()), **{name: found[name] for name in ("accuracy", "recall", "f1")}}
        if positive is None:
            return kept
        block = positive_metrics(labels[rows], probabilities[rows], confusion, classes, positive)
        names = ("rows", "alerts", "recall", "precision", "f1", "average_precision")
        return {**kept, "positive": {name: block[name] for name in names}}

    buckets = [
        {"low": low, "high": high, **own((lengths >= low) & (lengths <= high))} for low, high in length_buckets(lengths)
    ]
    return {"by_length": buckets, "truncated": own(truncated) if truncated.any() else None}
