"""Data of a report, shared by its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from seqclf.data.storage.store import SplitCounts
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.results import BaselineMetrics, Evaluation, SplitMetrics
from seqclf.evaluation.tokens_curve import TokensCurve
from seqclf.report.mistakes import Mistake
from seqclf.report.verdict import Verdict, verdict_of

MAX_ROWS = 60  # of a table with a row for each class or epoch


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a report shows.

    `history`: the rows of metrics.csv. `best_epoch`: the epoch that was exported. Epochs count from 0 here, as in
    metrics.csv. `no_baseline`, `not_yet` and `next_step`: see `RunMetrics`, None where the split alone tells.
    `created`: time of the report. `sources`: where the rows of each split come from. `counts`: rows and refusals of the
    splits, as the data was prepared. `holdout_rows`: validation rows that only set the threshold, and are in no split.
    `bundle`: folder of the bundle that was evaluated. `halting`: accuracy against tokens read, for a network that may
    halt before the end of a sequence.
    """

    title: str
    evaluation: Evaluation
    classes: list[str]
    positive: str | None
    mistakes: Sequence[Mistake]
    baseline: BaselineMetrics | None = None
    no_baseline: str | None = None
    next_step: str | None = None
    not_yet: list[str] | None = None
    calibration: Calibration | None = None
    history: Sequence[Mapping[str, Any]] = ()
    best_epoch: int | None = None
    warnings: Sequence[str] = ()
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, SplitCounts] = field(default_factory=dict)
    holdout_rows: int = 0
    bundle: str | None = None
    halting: TokensCurve | None = None

    @property
    def split(self) -> str:
        """Name of the split that the model is judged by."""
        return self.evaluation.split

    @property
    def metrics(self) -> SplitMetrics:
        """Metrics of that split."""
        return self.evaluation.metrics[self.split]

    @property
    def verdict(self) -> Verdict:
        """The verdict in sentences."""
        return verdict_of(
            self.metrics,
            self.split,
            self.evaluation.decision,
            self.baseline,
            self.no_baseline,
            self.next_step,
            self.not_yet,
        )

    @property
    def labels(self) -> np.ndarray:
        """(N,) class numbers of that split."""
        return self.evaluation.last.labels

    @property
    def positive_index(self) -> int | None:
        return None if self.positive is None else self.classes.index(self.positive)
