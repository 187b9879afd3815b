"""Sequence lengths by class and split, padding of training batches, and effects of truncation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.batching.options import BatchingOptions
from seqclf.batching.plan import padding_efficiency, plan_arguments, plan_batches
from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonResult

HISTOGRAM_BINS = 40
LONG_TAIL = 20.0  # bins are geometric if the longest length exceeds the median length by more than this factor


@dataclass(frozen=True)
class LengthSummary(JsonResult):
    """Count, range, mean and percentiles of sequence lengths, in tokens."""

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
class LengthHistogram(JsonResult):
    """Histogram of lengths. `edges`: the B + 1 edges of B bins. `by_class`: dict label → number of rows in each bin."""

    edges: list[float]
    by_class: dict[str, list[int]]


@dataclass(frozen=True)
class LengthStatistics(JsonResult):
    """Statistics of the sequence lengths before truncation: of all rows, of each class and of each split.

    Classes without rows are omitted.
    """

    JSON_NAMES: ClassVar[Mapping[str, str]] = {"all_rows": "all"}

    all_rows: LengthSummary
    by_class: dict[str, LengthSummary]
    by_split: dict[str, LengthSummary]
    histogram: LengthHistogram


def measure_lengths(dataset: Dataset) -> LengthStatistics:
    """Return length summaries of all rows, of each class and of each split, and a length histogram of each class."""
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
    """Return count, range, mean and percentiles of `lengths` (N,), where N ≥ 1.

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
    """Return bin edges halfway between integer lengths. The bins have equal widths.

    If the longest sequence is much longer than the median, the widths grow geometrically instead.
    """
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > LONG_TAIL * np.median(lengths):
        # With equal bins, nearly all rows would be in the first bin.
        return np.unique(np.geomspace(shortest, longest + 1, HISTOGRAM_BINS + 1).round()) - 0.5
    width = -(-(longest - shortest + 1) // HISTOGRAM_BINS)
    return np.arange(shortest, longest + width + 1, width) - 0.5


# Padding: padding efficiency of the batches in the first epoch, compared with padding every row to the longest row.

MAX_PLANNED_ROWS = 2_000_000  # maximum number of rows; larger data is measured on its first rows


@dataclass(frozen=True)
class PaddingSurvey(JsonResult):
    """Padding of the batches in the first epoch.

    The padding efficiency is the fraction of the batches that is not padding. `padding_efficiency`: padding efficiency
    of the planned batches. `padding_efficiency_static`: padding efficiency if every row were padded to the longest row
    of the data.
    """

    batches: int
    rows_per_batch: float
    padding_efficiency: float
    padding_efficiency_static: float


def survey_padding(dataset: Dataset, batching: BatchingOptions) -> PaddingSurvey:
    """Plan the batches of the first training epoch and measure their padding.

    `batching`: batching options of a config.
    """
    train = dataset.splits["train"]
    lengths = train.sequences.lengths[:MAX_PLANNED_ROWS]
    plan = plan_arguments(batching, lengths, train.labels[:MAX_PLANNED_ROWS])
    batches = plan_batches(lengths, **plan, seed=0, epoch=0)
    return PaddingSurvey(
        batches=len(batches),
        rows_per_batch=float(np.mean([len(rows) for rows in batches])),
        padding_efficiency=padding_efficiency(lengths, batches, plan["edges"]),
        padding_efficiency_static=float(lengths.mean() / lengths.max()),
    )


# Truncation: the applied length limit, and the rows and tokens that other limits would cut.

# Percentiles of the lengths to try as limits. A limit below the 90th percentile would cut too many rows.
TRIED_PERCENTILES = (90, 95, 99)


@dataclass(frozen=True)
class LimitTrial(JsonResult):
    """Effect of a length limit.

    `cut_rows`: fraction of rows that the limit cuts. `lost_tokens`: fraction of tokens that the limit removes.
    """

    JSON_NAMES: ClassVar[Mapping[str, str]] = {"lost_tokens": "lost_steps"}

    max_length: int
    cut_rows: float
    lost_tokens: float


@dataclass(frozen=True)
class TruncationSurvey(JsonResult):
    """The length limit of a dataset, the number of rows that it cuts in each split, and the effects of other limits."""

    JSON_NAMES: ClassVar[Mapping[str, str]] = {"trials": "if"}

    max_length: int | None
    truncate: str
    cut_rows: dict[str, int]
    trials: list[LimitTrial]


def survey_truncation(dataset: Dataset) -> TruncationSurvey:
    """Describe the length limit of a dataset, and measure the effects of other limits.

    The other limits are high percentiles of the lengths before truncation.
    """
    lengths = np.concatenate([split.lengths_before_truncation for split in dataset.splits.values()])
    limits = sorted({int(np.percentile(lengths, q)) for q in TRIED_PERCENTILES})
    return TruncationSurvey(
        max_length=dataset.schema.max_length,
        truncate=dataset.schema.truncate,
        cut_rows={name: counts.truncated for name, counts in dataset.report.items()},
        trials=[try_limit(lengths, limit) for limit in limits],
    )


def try_limit(lengths: np.ndarray, max_length: int) -> LimitTrial:
    """Measure the fractions of rows and tokens that the limit `max_length` would cut.

    `lengths`: (N,) lengths before truncation.

    >>> try_limit(np.array([2, 2, 4, 8]), max_length=4)
    LimitTrial(max_length=4, cut_rows=0.25, lost_tokens=0.25)
    """
    return LimitTrial(
        max_length=max_length,
        cut_rows=float((lengths > max_length).mean()),
        lost_tokens=float(np.maximum(0, lengths - max_length).sum() / lengths.sum()),
    )
