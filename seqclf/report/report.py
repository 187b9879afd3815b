"""The data that all sections of a report are built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from seqclf.evaluation.over_time import PeriodScores
from seqclf.evaluation.results import Evaluation, SplitMetrics
from seqclf.evaluation.run_result import RunResult
from seqclf.report.mistakes import Mistake
from seqclf.report.verdict import Verdict, verdict_of


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a report shows.

    `result`: metrics by split, decision, baseline and other results (see `RunResult`). `evaluation`: the model outputs
    that the metrics are computed from. `mistakes`: the worst misclassified rows. `history`: the rows of metrics.csv.
    `best_epoch`: the exported epoch, counted from 0 as in metrics.csv. `created`: time when the report was made.
    `sources`: dict split → source of its rows. `bundle`: folder of the evaluated bundle (an exported model). `periods`:
    scores of the split by time.
    """

    title: str
    result: RunResult
    evaluation: Evaluation
    mistakes: Sequence[Mistake]
    history: Sequence[Mapping[str, Any]] = ()
    best_epoch: int | None = None
    warnings: Sequence[str] = ()
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    bundle: str | None = None
    periods: Sequence[PeriodScores] = ()

    @property
    def split(self) -> str:
        """Name of the split whose metrics decide the verdict."""
        return self.result.split

    @property
    def metrics(self) -> SplitMetrics:
        """Metrics on the split that decides the verdict."""
        return self.result.metrics

    @property
    def classes(self) -> list[str]:
        return self.result.classes

    @property
    def positive(self) -> str | None:
        return self.result.positive

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model as sentences."""
        return verdict_of(self.result)

    @property
    def labels(self) -> np.ndarray:
        """True class numbers (N,) on the split that decides the verdict."""
        return self.evaluation.last.labels

    @property
    def positive_index(self) -> int | None:
        return None if self.positive is None else self.classes.index(self.positive)
