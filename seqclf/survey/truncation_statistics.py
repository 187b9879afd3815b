"""Truncation: the limit that was applied, and the rows and tokens that other limits would cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.system.json_result import JsonObject

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
