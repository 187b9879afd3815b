"""Result of one split: the metrics of its rows under a decision, with slices, intervals, targets and alarms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.evaluation.alarms import Alarm, find_alarms
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.design_effect import effective_groups, mean_effect
from seqclf.evaluation.intervals import Intervals, metric_intervals
from seqclf.evaluation.metrics import Metrics, classification_metrics, confusion_matrix, confusion_metrics
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.slices import Groups, JudgedRows, Slice, groups_of, slices_by_length
from seqclf.evaluation.targets import Target, target_results


@dataclass(frozen=True, kw_only=True)
class WeightedMetrics(Metrics):
    """Metrics of a split in which each row counts by its weight (`data.weight`), with 95 % intervals.

    `weight`: sum of the weights. `effective_rows`: Kish's effective number of rows. `support_by_class`, `confusion`:
    sums of weights.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = Metrics.OMIT_NONE | {"intervals"}

    weight: float
    effective_rows: float
    support_by_class: dict[str, float]  # type: ignore[assignment]
    confusion: list[list[float]]  # type: ignore[assignment]
    intervals: Intervals | None = None

    @classmethod
    def of(
        cls,
        labels: np.ndarray,
        probabilities: np.ndarray,
        classes: list[str],
        positive: str | None,
        predicted: np.ndarray,
        weights: np.ndarray | None,
        group: np.ndarray | None = None,
        *,
        with_intervals: bool = False,
    ) -> WeightedMetrics | None:
        """Return the metrics of rows with `weights` (N,), None without weights, or if all are 0."""
        if weights is None or not weights.any():
            return None
        given = probabilities, classes, positive
        return cls(
            **vars(classification_metrics(labels, *given, predicted, weights)),
            weight=float(weights.sum()),
            effective_rows=effective_groups(np.arange(len(weights)), weights),
            intervals=metric_intervals(labels, predicted, *given, group, weights=weights) if with_intervals else None,
        )


@dataclass(frozen=True, kw_only=True)
class SplitResult(Metrics):
    """Metrics of a split with their slices, intervals and alarms: a block of metrics.json.

    `groups`: None for independent rows. `targets`: results of the decision's targets, if any. `used_for`: choices, such
    as epoch and threshold, that the rows made, so that the metrics are too optimistic. `by_folds`: True if each part of
    the rows is judged at a threshold that the other parts set. `weighted`: the metrics by weights, None without them;
    all others count rows. `own`: dict name → metric of one's own, if it is finite, of the probabilities before
    calibration; only a training computes them.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {*Metrics.OMIT_NONE, "groups", "intervals", "targets", "used_for", "by_folds", "weighted", "own"}
    )

    by_length: list[Slice]
    truncated: Slice | None
    intervals: Intervals | None = None
    alarms: list[Alarm]
    groups: Groups | None = None
    targets: list[Target] | None = None
    used_for: list[str] | None = None
    by_folds: bool | None = None
    weighted: WeightedMetrics | None = None
    own: dict[str, float] | None = None

    @property
    def largest(self) -> str:
        """Label with the most rows."""
        return max(self.support_by_class, key=lambda label: self.support_by_class[label])


def judge_split(
    rows: ScoredRows,
    classes: list[str],
    positive: str | None,
    decision: Decision,
    *,
    with_intervals: bool,
    used_for: list[str] | None = None,
) -> SplitResult:
    """Return the result of one split under a decision. `used_for`: see `SplitResult`.

    `with_intervals`: True to add 95 % confidence intervals.

    >>> rows = ScoredRows(
    ...     logits=np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 0.0]]),
    ...     labels=np.array([0, 1, 1]),
    ...     lengths=np.array([2, 5, 9]),
    ...     truncated=np.zeros(3, bool),
    ... )
    >>> result = judge_split(rows, ["no", "yes"], "yes", Decision(), with_intervals=False)
    >>> result.positive.recall, [(part.title, part.recall) for part in result.by_length]
    (0.5, [('2', 1.0), ('3 to 5', 1.0), ('6 to 9', 0.0)])
    """
    labels, predicted = rows.labels.astype(np.int64), rows.predicted(decision)
    probabilities, group, judged = (
        rows.probabilities(decision),
        rows.group,
        JudgedRows(rows, decision, classes, positive),
    )
    given = probabilities, classes, positive
    metrics = classification_metrics(labels, *given, predicted)
    intervals, weights = None, rows.weights
    if with_intervals:
        intervals = metric_intervals(labels, predicted, *given, group)
    targets, argmax = threshold_labels(decision, positive), None
    if targets:
        argmax = confusion_metrics(confusion_matrix(labels, probabilities.argmax(axis=1), len(classes)), classes)
    return SplitResult(
        **vars(metrics),
        by_length=slices_by_length(judged),
        truncated=Slice.of("truncated", judged, np.flatnonzero(rows.truncated)) if rows.truncated.any() else None,
        intervals=intervals,
        # A decision with a target intentionally accepts a lower accuracy than always predicting the largest class.
        alarms=find_alarms(
            metrics,
            classes,
            positive,
            targets,
            None if intervals is None or intervals.positive is None else intervals.positive.auroc,
            argmax,
            mean_effect(labels == predicted, group),
            [guarantee.label for guarantee in decision.targets if guarantee.lacks_rows],
        ),
        groups=groups_of(judged),
        targets=target_results(decision, labels, predicted, classes, group, weights) or None,
        weighted=WeightedMetrics.of(labels, *given, predicted, weights, group, with_intervals=with_intervals),
        used_for=used_for,
        by_folds=None if rows.by_folds is None else True,
    )


def threshold_labels(decision: Decision, positive: str | None) -> list[str]:
    """Return the labels whose threshold the decision moves: the labels of its targets, or the positive label."""
    labels = list(dict.fromkeys(guarantee.label for guarantee in decision.targets))
    return labels or ([] if positive is None or decision.rule == "argmax" else [positive])


def unproven_labels(decision: Decision, metrics: SplitResult) -> list[str]:
    """Return the labels with a threshold whose precision is not shown to be above the fraction of rows with the label.

    A label of several classes has no interval, so its precision itself is compared.
    """
    lows, positive = metrics.precision_by_class, None if metrics.positive is None else metrics.positive.label
    if positive is not None and metrics.intervals is not None and metrics.intervals.positive is not None:
        interval = metrics.intervals.positive.precision
        lows = {**lows, positive: None if interval is None else interval[0]}
    support, labels = metrics.support_by_class, threshold_labels(decision, positive)
    return [label for label in labels if 0 < support[label] >= (lows[label] or 0.0) * metrics.rows]
