"""Data of a report, shared by its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from seqclf.evaluation.results import Evaluation, SplitMetrics
from seqclf.evaluation.run_result import RunResult
from seqclf.report.mistakes import Mistake
from seqclf.report.verdict import Verdict, verdict_of

MAX_ROWS = 60  # of a table with a row for each class or epoch


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a report shows.

    `result`: metrics by split, decision, baseline and more (see `RunResult`). `evaluation`: the outputs that they are
    computed from. `history`: the rows of metrics.csv. `best_epoch`: the epoch that was exported. Epochs count from 0
    here, as in metrics.csv. `created`: time of the report. `sources`: where the rows of each split come from. `bundle`:
    folder of the bundle that was evaluated.
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

    @property
    def split(self) -> str:
        """Name of the split that the model is judged by."""
        return self.result.split

    @property
    def metrics(self) -> SplitMetrics:
        """Metrics of that split."""
        return self.result.metrics

    @property
    def classes(self) -> list[str]:
        return self.result.classes

    @property
    def positive(self) -> str | None:
        return self.result.positive

    @property
    def verdict(self) -> Verdict:
        """The verdict in sentences."""
        return verdict_of(self.result)

    @property
    def labels(self) -> np.ndarray:
        """(N,) class numbers of that split."""
        return self.evaluation.last.labels

    @property
    def positive_index(self) -> int | None:
        return None if self.positive is None else self.classes.index(self.positive)
