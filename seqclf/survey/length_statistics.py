"""Length statistics before truncation: percentiles of all rows and of each class, and a histogram by class."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonObject

HISTOGRAM_BINS = 40
LONG_TAIL = 20.0  # longest length over the median from which the bins grow geometrically


@dataclass(frozen=True)
class LengthSummary:
    """Count, range, mean and percentiles of some lengths, in tokens."""

    rows: int
    min: int
    mean: float
    p1: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    max: int


@dataclass(frozen=True)
class LengthHistogram:
    """Row counts between `edges` (B + 1,), as lists of B counts by class."""

    edges: list[float]
    by_class: dict[str, list[int]]


@dataclass(frozen=True)
class LengthStatistics:
    """Lengths before truncation: of all splits together, by class and by split. A class without rows has no summary."""

    all_rows: LengthSummary
    by_class: dict[str, LengthSummary]
    by_split: dict[str, LengthSummary]
    histogram: LengthHistogram

    def to_dict(self) -> JsonObject:
        """Return plain values."""
        return {
            "all": asdict(self.all_rows),
            "by_class": {label: asdict(summary) for label, summary in self.by_class.items()},
            "by_split": {split: asdict(summary) for split, summary in self.by_split.items()},
            "histogram": asdict(self.histogram),
        }


def measure_lengths(dataset: Dataset) -> LengthStatistics:
    """Return summaries of all rows, of each class and of each split, and a histogram of all rows by class."""
    lengths = np.concatenate([split.lengths_before_truncation for split in dataset.splits.values()])
    labels = np.concatenate([split.labels for split in dataset.splits.values()])
    edges = histogram_edges(lengths)
    lengths_of = {label: lengths[labels == code] for code, label in enumerate(dataset.classes)}
    return LengthStatistics(
        all_rows=summarize_lengths(lengths),
        by_class={label: summarize_lengths(values) for label, values in lengths_of.items() if len(values)},
        by_split={name: summarize_lengths(split.lengths_before_truncation) for name, split in dataset.splits.items()},
        histogram=LengthHistogram(
            edges=edges.tolist(),
            by_class={label: np.histogram(values, edges)[0].tolist() for label, values in lengths_of.items()},
        ),
    )


def summarize_lengths(lengths: np.ndarray) -> LengthSummary:
    """Summarize (N,) lengths, N ≥ 1.

    >>> summary = summarize_lengths(np.array([1, 2, 3, 10]))
    >>> summary.rows, summary.mean, summary.p50, summary.max
    (4, 4.0, 2.5, 10)
    """
    percentiles = {f"p{q}": float(np.percentile(lengths, q)) for q in (1, 5, 25, 50, 75, 95, 99)}
    return LengthSummary(
        rows=len(lengths),
        min=int(lengths.min()),
        mean=float(lengths.mean()),
        max=int(lengths.max()),
        **percentiles,
    )


def histogram_edges(lengths: np.ndarray) -> np.ndarray:
    """Return bin edges halfway between whole lengths: of equal width, or geometric for a long tail."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > LONG_TAIL * np.median(lengths):
        # Equal bins would put nearly all rows into the first one.
        return np.unique(np.geomspace(shortest, longest + 1, HISTOGRAM_BINS + 1).round()) - 0.5
    width = -(-(longest - shortest + 1) // HISTOGRAM_BINS)
    return np.arange(shortest, longest + width + 1, width) - 0.5
