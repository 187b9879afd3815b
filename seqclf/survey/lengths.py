"""Sequence lengths of a dataset before truncation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class LengthSummary(JsonResult):
    """Count, range, mean, median and 95 % quantile of sequence lengths, in tokens."""

    rows: int
    min: int
    mean: float
    p50: float
    p95: float
    max: int


@dataclass(frozen=True)
class LengthStatistics(JsonResult):
    """Lengths of each class and of each split. Classes without rows are left out."""

    by_class: dict[str, LengthSummary]
    by_split: dict[str, LengthSummary]


def measure_lengths(dataset: Dataset) -> LengthStatistics:
    """Return the lengths of each class and of each split."""
    lengths = np.concatenate([split.lengths_before_truncation for split in dataset.splits.values()])
    labels = np.concatenate([split.labels for split in dataset.splits.values()])
    lengths_of = {label: lengths[labels == code] for code, label in enumerate(dataset.classes)}
    return LengthStatistics(
        by_class={label: summarize_lengths(values) for label, values in lengths_of.items() if len(values)},
        by_split={name: summarize_lengths(split.lengths_before_truncation) for name, split in dataset.splits.items()},
    )


def summarize_lengths(lengths: np.ndarray) -> LengthSummary:
    """Summarize `lengths` (N,), where N ≥ 1.

    >>> summary = summarize_lengths(np.array([1, 2, 3, 10]))
    >>> summary.rows, summary.mean, summary.p50, summary.max
    (4, 4.0, 2.5, 10)
    """
    p50, p95 = np.percentile(lengths, (50, 95)).tolist()
    return LengthSummary(len(lengths), int(lengths.min()), float(lengths.mean()), p50, p95, int(lengths.max()))
