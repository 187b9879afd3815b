"""Length statistics before truncation, by class and split; padding of the batches; effects of truncation."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from seqclf.batching.options import BatchingOptions
from seqclf.batching.plan import padding_efficiency, plan_arguments, plan_batches
from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonObject, JsonResult

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


# Padding: the efficiency of the first epoch's batches, next to padding every row to the longest.

MAX_PLANNED_ROWS = 2_000_000  # the efficiency of more rows is that of the first ones


@dataclass(frozen=True)
class PaddingSurvey(JsonResult):
    """Batches of the first epoch. `padding_efficiency`: tokens over computed tokens, padding included.
    `padding_efficiency_static`: the same if every row were padded to the longest."""

    batches: int
    rows_per_batch: float
    padding_efficiency: float
    padding_efficiency_static: float


def survey_padding(dataset: Dataset, batching: BatchingOptions) -> PaddingSurvey:
    """Plan the first epoch of training with the `batching` of a config and measure its padding."""
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


# Truncation: the limit that was applied, and the rows and tokens that other limits would cut.

# A limit below the 90th percentile would cut more rows than anyone accepts.
TRIED_PERCENTILES = (90, 95, 99)


@dataclass(frozen=True)
class LimitTrial:
    """Shares of the rows cut and of the tokens lost under a `max_length`."""

    max_length: int
    cut_rows: float
    lost_tokens: float

    def to_dict(self) -> JsonObject:
        """Return plain values."""
        return {"max_length": self.max_length, "cut_rows": self.cut_rows, "lost_steps": self.lost_tokens}


@dataclass(frozen=True)
class TruncationSurvey:
    """The dataset's limit, the number of rows it cut in each split, and trials of other limits."""

    max_length: int | None
    truncate: str
    cut_rows: dict[str, int]
    trials: list[LimitTrial]

    def to_dict(self) -> JsonObject:
        """Return plain values. The trials are under `if`."""
        return {
            "max_length": self.max_length,
            "truncate": self.truncate,
            "cut_rows": self.cut_rows,
            "if": [trial.to_dict() for trial in self.trials],
        }


def survey_truncation(dataset: Dataset) -> TruncationSurvey:
    """Report the limit of a dataset and try others at high percentiles of its lengths before truncation."""
    lengths = np.concatenate([split.lengths_before_truncation for split in dataset.splits.values()])
    limits = sorted({int(np.percentile(lengths, q)) for q in TRIED_PERCENTILES})
    return TruncationSurvey(
        max_length=dataset.schema.max_length,
        truncate=dataset.schema.truncate,
        cut_rows={name: counts.truncated for name, counts in dataset.report.items()},
        trials=[try_limit(lengths, limit) for limit in limits],
    )


def try_limit(lengths: np.ndarray, max_length: int) -> LimitTrial:
    """Measure what a limit would cut of sequences with these (N,) lengths.

    >>> try_limit(np.array([2, 2, 4, 8]), max_length=4)
    LimitTrial(max_length=4, cut_rows=0.25, lost_tokens=0.25)
    """
    return LimitTrial(
        max_length=max_length,
        cut_rows=float((lengths > max_length).mean()),
        lost_tokens=float(np.maximum(0, lengths - max_length).sum() / lengths.sum()),
    )
