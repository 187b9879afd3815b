"""The data that all sections of a report are built from, with the worst mistakes of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.encoding.token_table import DescribedRow
from seqclf.evaluation.ladder import Rung
from seqclf.evaluation.over_time import PeriodScores
from seqclf.evaluation.results import MAX_MISTAKES, Evaluation, SplitMetrics
from seqclf.evaluation.run_result import RunResult
from seqclf.report.verdict import Verdict, verdict_of


class Mistake(NamedTuple):
    """A misclassified row.

    `probability`: predicted probability of the true label. `length`: number of tokens before truncation. `row`: the
    texts and tokens of the row.
    """

    label: str
    predicted: str
    probability: float
    length: int
    row: DescribedRow


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that a report shows.

    `result`: metrics by split, decision, baseline and other results (see `RunResult`). `evaluation`: the model outputs
    that the metrics are computed from. `mistakes`: the worst misclassified rows. `history`: the rows of metrics.csv.
    `best_epoch`: the exported epoch, counted from 0 as in metrics.csv. `created`: time when the report was made.
    `sources`: dict split → source of its rows. `bundle`: folder of the evaluated bundle (an exported model). `periods`:
    scores of the split by time. `against`: rungs of an old model and of this one.
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
    against: Sequence[Rung] = ()

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


def worst_mistakes(
    evaluation: Evaluation, classes: list[str], describe_row: Callable[[int], DescribedRow]
) -> list[Mistake]:
    """Return at most `MAX_MISTAKES` misclassified rows of the last split.

    The row whose true label has the lowest predicted probability comes first. `describe_row`: function that describes
    the row with a given number. `describe_row` is called only for the returned rows.
    """
    labels, predicted, probabilities = evaluation.last.labels, evaluation.predicted, evaluation.probabilities
    wrong = np.flatnonzero(labels != predicted)
    of_label = probabilities[wrong, labels[wrong]]
    order = np.argsort(of_label, kind="stable")[:MAX_MISTAKES]
    return [
        Mistake(
            label=classes[labels[row]],
            predicted=classes[predicted[row]],
            probability=probability,
            length=int(evaluation.last.lengths[row]),
            row=describe_row(row),
        )
        for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True)
    ]
