"""How many rows of each class, how long they are, and what a limit and the batches make of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqclf.batching.plan import padding_efficiency, plan_arguments, plan_batches
from seqclf.data.storage.dataset import Dataset

QUANTILES = (1, 5, 25, 50, 75, 95, 99)
LENGTH_BINS = 40
LONG_TAIL = 20.0  # times the median
MOST_PLANNED = 2_000_000  # lengths


def count_classes(dataset: Dataset) -> list[dict[str, Any]]:
    """Rows of each class in each split."""
    size = len(dataset.classes)
    counts = {name: np.bincount(split.labels, minlength=size) for name, split in dataset.splits.items()}
    total = np.sum(list(counts.values()), axis=0)
    return [
        {
            "label": label,
            **{name: int(own[code]) for name, own in counts.items()},
            "share": float(total[code] / total.sum()),
        }
        for code, label in enumerate(dataset.classes)
    ]


def measure_lengths(dataset: Dataset) -> dict[str, Any]:
    """Summaries of all rows and of each class, and a histogram of train by class."""
    lengths = np.concatenate([split.sequences.lengths for split in dataset.splits.values()])
    labels = np.concatenate([split.labels for split in dataset.splits.values()])
    edges = _edges(lengths)
    by_class = {label: lengths[labels == code] for code, label in enumerate(dataset.classes)}
    return {
        "all": _summary(lengths),
        "by_class": {label: _summary(own) for label, own in by_class.items() if len(own)},
        "by_split": {name: _summary(split.sequences.lengths) for name, split in dataset.splits.items()},
        "histogram": {
            "edges": edges.tolist(),
            "by_class": {label: np.histogram(own, edges)[0].tolist() for label, own in by_class.items()},
        },
    }


def _edges(lengths: np.ndarray) -> np.ndarray:
    """Bins of whole lengths, all as wide; of lengths that differ a lot, each wider than the one before by a factor."""
    low, high = int(lengths.min()), int(lengths.max())
    if high > LONG_TAIL * np.median(lengths):
        return np.unique(np.geomspace(low, high + 1, LENGTH_BINS + 1).round()) - 0.5
    width = -(-(high - low + 1) // LENGTH_BINS)
    return np.arange(low, high + width + 1, width) - 0.5


def _summary(lengths: np.ndarray) -> dict[str, float]:
    quantiles = {f"p{q}": float(np.percentile(lengths, q)) for q in QUANTILES}
    return {
        "rows": len(lengths),
        "min": int(lengths.min()),
        "mean": float(lengths.mean()),
        **quantiles,
        "max": int(lengths.max()),
    }


def try_limits(dataset: Dataset) -> dict[str, Any]:
    lengths = np.concatenate([split.sequences.lengths for split in dataset.splits.values()])
    limits = sorted({int(np.percentile(lengths, q)) for q in (90, 95, 99)})
    rows = [
        {
            "max_length": limit,
            "cut_rows": float((lengths > limit).mean()),
            "lost_steps": float(np.maximum(0, lengths - limit).sum() / lengths.sum()),
        }
        for limit in limits
    ]
    return {
        "max_length": dataset.schema.max_length,
        "truncate": dataset.schema.truncate,
        "cut_rows": {name: counts["truncated"] for name, counts in dataset.report.items()},
        "if": rows,
    }


def try_batches(dataset: Dataset, batching: Mapping[str, Any]) -> dict[str, Any]:
    """What the plan of the first epoch makes of the training lengths, and what padding all to the longest would."""
    train = dataset.splits["train"]
    lengths = train.sequences.lengths[:MOST_PLANNED]
    plan = plan_arguments(batching, lengths, train.labels[:MOST_PLANNED])
    batches = plan_batches(lengths, **plan, seed=0, epoch=0)
    return {
        "batches": len(batches),
        "rows_per_batch": float(np.mean([len(rows) for rows in batches])),
        "padding_efficiency": padding_efficiency(lengths, batches, plan["edges"]),
        "padding_efficiency_static": float(lengths.mean() / lengths.max()),
    }
