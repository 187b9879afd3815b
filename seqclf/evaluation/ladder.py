"""The ladder of a run: models of growing ability on the same rows, each compared in pairs with the one below it.

The lowest rung sees tokens without their order. Each gain says what an order that the model can read, or a larger
model, adds (see `comparison.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from seqclf.evaluation.comparison import MetricComparison, RowPredictions, compare_models
from seqclf.evaluation.metrics import ClassificationMetrics, classification_metrics
from seqclf.evaluation.ranking import ranking_scores
from seqclf.system.json_result import JsonResult

ORDER_BLIND, NETWORK = "order-blind", "network"  # names of rungs
OLD, NEW = "old", "new"  # and of two models that are compared


@dataclass(frozen=True, kw_only=True)
class Rung(JsonResult):
    """A model on the ladder, with its metrics on the rows that all rungs share.

    `name`: such as "order-blind". `model`: kind, such as "gradient boosting". `recall`: macro recall. `auroc`: of the
    positive label, or the mean of all. `metric`, `value`: the deciding metric. `gain`: comparisons with the rung below,
    of which the first decides; None for the lowest rung.
    """

    name: str
    model: str
    rows: int
    loss: float
    accuracy: float
    recall: float
    auroc: float | None
    metric: str
    value: float
    gain: list[MetricComparison] | None = None


class JudgedRows(NamedTuple):
    """The N rows on which models are compared.

    `labels`: (N,) class numbers. `monitor`: metric that chose the epoch, None for the last step. `group`: (N,) codes of
    groups, None where each row stands alone. `targets`: dict label → class number, for labels of several classes with a
    target.
    """

    labels: np.ndarray
    classes: list[str]
    positive: str | None
    monitor: str | None
    group: np.ndarray | None = None
    targets: Mapping[str, int] = MappingProxyType({})

    def compare(self, model: RowPredictions, baseline: RowPredictions) -> list[MetricComparison]:
        """Compare two models, whose scores are probabilities, on these rows (see `compare_models`)."""
        positive = None if self.positive is None else self.classes.index(self.positive)
        first, other = (
            RowPredictions(one.predicted, ranking_scores(np.array(one.scores))) for one in (model, baseline)
        )
        return compare_models(self.labels, first, other, positive, self.monitor, self.group, targets=self.targets)

    def metrics(self, predictions: RowPredictions) -> ClassificationMetrics:
        """Return the metrics of a model, whose scores are probabilities, on these rows."""
        assert predictions.scores is not None, "the loss needs probabilities"
        return classification_metrics(
            self.labels, predictions.scores, self.classes, self.positive, predictions.predicted
        )


class Contender(NamedTuple):
    """A model that becomes a rung. `metrics`: None if they are not computed yet.

    `predictions`: of the judged rows; the scores are probabilities.
    """

    model: str
    predictions: RowPredictions
    metrics: ClassificationMetrics | None = None

    def take(self, positions: np.ndarray) -> Contender:
        """Return the model with its predictions of some rows, (M,) positions, and the metrics of all rows."""
        if len(positions) == len(self.predictions.predicted):
            return self
        predicted, scores = self.predictions
        return Contender(
            self.model, RowPredictions(predicted[positions], None if scores is None else scores[positions])
        )


def most_probable(probabilities: np.ndarray) -> RowPredictions:
    """Return predictions of the most probable classes. `probabilities`: (N, C)."""
    return RowPredictions(probabilities.argmax(axis=1), probabilities)


def build_ladder(
    contenders: Mapping[str, Contender],
    rows: JudgedRows,
    compared: Mapping[tuple[str, str], Sequence[MetricComparison]] | None = None,
) -> tuple[Rung, ...]:
    """Return the rungs from the lowest to the highest, none for a single contender.

    `contenders`: dict name of a rung → its model, the lowest first. `compared`: comparisons that are made already, by
    the names of the upper and the lower model.

    >>> labels = np.array([0, 1, 2] * 20)
    >>> constant = Contender("constant", RowPredictions(np.zeros(60, np.int64), np.full((60, 3), 1 / 3)))
    >>> perfect = Contender("LSTM", RowPredictions(labels, np.eye(3)[labels]))
    >>> rows = JudgedRows(labels, ["a", "b", "c"], positive=None, monitor="recall")
    >>> lower, upper = build_ladder({"order-blind": constant, "network": perfect}, rows)
    >>> lower.gain, round(upper.recall - lower.recall, 3), upper.gain[0].is_better
    (None, 0.667, True)
    """
    known = {} if compared is None else compared
    gains = [
        list(known.get((upper, lower)) or rows.compare(contenders[upper].predictions, contenders[lower].predictions))
        for lower, upper in pairwise(contenders)
    ]
    if not gains:
        return ()
    # The lowest rung has no comparison of its own: the rung above was compared with it.
    values = [gains[0][0].baseline, *(gain[0].model for gain in gains)]
    return tuple(
        _rung(name, contender, rows, gains[0][0].metric, value, gain)
        for (name, contender), value, gain in zip(contenders.items(), values, [None, *gains], strict=True)
    )


def _rung(
    name: str, contender: Contender, rows: JudgedRows, metric: str, value: float, gain: list[MetricComparison] | None
) -> Rung:
    metrics = contender.metrics or rows.metrics(contender.predictions)
    return Rung(
        name=name,
        model=contender.model,
        rows=metrics.rows,
        loss=metrics.loss,
        accuracy=metrics.accuracy,
        recall=metrics.recall,
        auroc=(metrics.positive or metrics).auroc,
        metric=metric,
        value=value,
        gain=gain,
    )
