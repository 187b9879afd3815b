"""Results of the evaluation of a trained model, by split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from seqclf.evaluation.alarms import Alarm, find_alarms
from seqclf.evaluation.calibration import (
    Calibration,
    CalibrationErrors,
    calibration_error,
    calibration_error_by_chance,
    softmax,
)
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.design_effect import group_codes, mean_effect
from seqclf.evaluation.group_scores import GroupScores, group_scores
from seqclf.evaluation.intervals import MetricIntervals, metric_intervals
from seqclf.evaluation.metrics import (
    ClassificationMetrics,
    ConfusionMetrics,
    classification_metrics,
    confusion_matrix,
    confusion_metrics,
)
from seqclf.evaluation.slices import LengthSlice, ScoredRows, SliceMetrics, slice_metrics, slices_by_length
from seqclf.evaluation.target_results import TargetResult, target_results
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    import pyarrow as pa

MAX_MISTAKES = 20  # maximum number of misclassified rows in a report


class SplitOutputs(NamedTuple):
    """Outputs of a model for the rows of a split.

    `logits`: (N, C). `labels`: (N,) int64 class numbers. `lengths`: (N,) int64 tokens before truncation. `truncated`:
    (N,) bool. `groups`: (N,) keys, equal for rows of one group, None for independent rows. `group_names`: (N,) values
    of `data.group`, null for a row without a group, None if equal sequences form the groups. `ids`: (N,) strings or
    None. `probabilities`: (N, C) of a model without logits. `positions`: (N,) in the split of the data set, None if
    unknown. `fold`: (N,) int64 part of each row, if the threshold of a part is set by the others. `predicted`: (N,)
    int64 class numbers at the threshold of each part, None for the threshold of all rows. `extra`: dict name of another
    output (see `SequenceNetwork.extra_outputs`) → (N,) or (N, D).
    """

    logits: np.ndarray
    labels: np.ndarray
    lengths: np.ndarray
    truncated: np.ndarray
    groups: np.ndarray | None = None
    group_names: pa.Array | None = None
    ids: pa.Array | None = None
    probabilities: np.ndarray | None = None
    positions: np.ndarray | None = None
    fold: np.ndarray | None = None
    predicted: np.ndarray | None = None
    extra: Mapping[str, np.ndarray] = MappingProxyType({})

    def chosen(self, decision: Decision) -> np.ndarray:
        """Return the predicted class numbers (N,): `predicted`, or else the classes that `decision` chooses."""
        return decision.choose(self.logits) if self.predicted is None else self.predicted


@dataclass(frozen=True, kw_only=True)
class MajorityMetrics(JsonResult):
    """Metrics of always predicting the largest class, `label`. `f1` is the macro mean, `f1_of_label` the label's F1."""

    label: str
    accuracy: float
    recall: float
    precision: float
    f1: float
    f1_of_label: float


@dataclass(frozen=True, kw_only=True)
class SplitMetrics(ClassificationMetrics):
    """Metrics of a split with their slices, intervals and alarms: a block of metrics.json.

    `groups`: None for independent rows. `targets`: results of the decision's targets, if any. `used_for`: choices, such
    as epoch and threshold, that the rows made, so that the metrics are too optimistic. `by_folds`: True if each part of
    the rows is judged at a threshold that the other parts set.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = ClassificationMetrics.OMIT_NONE | {
        "groups",
        "intervals",
        "targets",
        "used_for",
        "by_folds",
    }

    by_length: list[LengthSlice]
    truncated: SliceMetrics | None
    intervals: MetricIntervals | None = None
    alarms: list[Alarm]
    majority: MajorityMetrics
    groups: GroupScores | None = None
    targets: list[TargetResult] | None = None
    used_for: list[str] | None = None
    by_folds: bool | None = None


@dataclass(frozen=True, kw_only=True)
class BaselineCandidate(JsonResult):
    """An order-blind model. `validation`, `last`: its deciding metric on validation rows and on the last split."""

    model: str
    validation: float
    last: float


@dataclass(frozen=True, kw_only=True)
class BaselineMetrics(ClassificationMetrics):
    """Metrics of an order-blind model on the split that the trained model is judged by.

    `comparison`: comparisons of both on the same rows, of which the first decides (see `compare_models`). `candidates`:
    all order-blind models that were tried.
    """

    model: str
    split: str
    candidates: list[BaselineCandidate] = field(default_factory=list)
    comparison: list[MetricComparison] = field(default_factory=list)


@dataclass(frozen=True)
class Evaluation:
    """Outputs of a model on each split, and its decision. The last split judges the model."""

    outputs: Mapping[str, SplitOutputs]
    decision: Decision

    @property
    def split(self) -> str:
        """Name of the last split."""
        return list(self.outputs)[-1]

    @property
    def last(self) -> SplitOutputs:
        return self.outputs[self.split]

    @property
    def probabilities(self) -> np.ndarray:
        """Probabilities (N, C) of the rows of the last split."""
        return self.decision.probabilities(self.last.logits)

    @property
    def predicted(self) -> np.ndarray:
        """Predicted class numbers (N,) of the rows of the last split."""
        return self.last.chosen(self.decision)


def evaluate_split(
    outputs: SplitOutputs,
    classes: list[str],
    positive: str | None,
    decision: Decision,
    *,
    with_intervals: bool,
    used_for: list[str] | None = None,
) -> SplitMetrics:
    """Return the metrics of the outputs of one split under a decision. `used_for`: see `SplitMetrics`.

    `with_intervals`: True to add 95 % confidence intervals.

    >>> outputs = SplitOutputs(
    ...     logits=np.array([[3.0, 0.0], [0.0, 3.0], [1.0, 0.0]]),
    ...     labels=np.array([0, 1, 1]),
    ...     lengths=np.array([2, 5, 9]),
    ...     truncated=np.zeros(3, bool),
    ... )
    >>> metrics = evaluate_split(outputs, ["no", "yes"], "yes", Decision(), with_intervals=False)
    >>> metrics.positive.recall, [(part.low, part.high, part.recall) for part in metrics.by_length]
    (0.5, [(2, 2, 1.0), (3, 5, 1.0), (6, 9, 0.0)])
    """
    labels = outputs.labels.astype(np.int64)
    predictions = ScoredRows(
        labels, outputs.chosen(decision), decision.probabilities(outputs.logits), classes, positive
    )
    metrics = classification_metrics(labels, predictions.probabilities, classes, positive, predictions.predicted)
    by_length = slices_by_length(predictions, outputs.lengths)
    group = group_codes(outputs.groups)
    effect = mean_effect(labels == predictions.predicted, group)
    intervals = None
    if with_intervals:
        intervals = metric_intervals(labels, predictions.predicted, predictions.probabilities, classes, positive, group)
    auroc = None if intervals is None or intervals.positive is None else intervals.positive.auroc
    targets, argmax = threshold_labels(decision, positive), None
    few = [guarantee.label for guarantee in decision.targets if guarantee.lacks_rows]
    if targets:
        most_probable = predictions.probabilities.argmax(axis=1)
        argmax = confusion_metrics(confusion_matrix(labels, most_probable, len(classes)), classes)
    return SplitMetrics(
        **vars(metrics),
        by_length=by_length,
        truncated=slice_metrics(predictions, outputs.truncated) if outputs.truncated.any() else None,
        intervals=intervals,
        # A decision with a target intentionally accepts a lower accuracy than always predicting the largest class.
        alarms=find_alarms(metrics, classes, positive, targets, auroc, argmax, effect, few),
        majority=majority_metrics(metrics, len(labels)),
        groups=(
            None
            if group is None
            else group_scores(
                labels,
                predictions.predicted,
                group,
                outputs.group_names,
                None if positive is None else classes.index(positive),
            )
        ),
        targets=target_results(decision, labels, predictions.predicted, classes, group) or None,
        used_for=used_for,
        by_folds=None if outputs.predicted is None else True,
    )


def threshold_labels(decision: Decision, positive: str | None) -> list[str]:
    """Return the labels whose threshold the decision moves: the labels of its targets, or the positive label."""
    labels = list(dict.fromkeys(guarantee.label for guarantee in decision.targets))
    return labels or ([] if positive is None or decision.rule == "argmax" else [positive])


def unproven_labels(decision: Decision, metrics: SplitMetrics) -> list[str]:
    """Return the labels with a threshold whose precision is not shown to be above the fraction of rows with the label.

    A label of several classes has no interval, so its precision itself is compared.
    """
    lows, positive = metrics.precision_by_class, None if metrics.positive is None else metrics.positive.label
    if positive is not None and metrics.intervals is not None and metrics.intervals.positive is not None:
        interval = metrics.intervals.positive.precision
        lows = {**lows, positive: None if interval is None else interval[0]}
    support, labels = metrics.support_by_class, threshold_labels(decision, positive)
    return [label for label in labels if 0 < support[label] >= (lows[label] or 0.0) * metrics.rows]


def majority_metrics(metrics: ConfusionMetrics, rows: int) -> MajorityMetrics:
    """Return the metrics of always predicting the largest class of a split of `rows` rows."""
    support = metrics.support_by_class
    label = max(support, key=lambda name: support[name])
    present = sum(count > 0 for count in support.values())
    accuracy = support[label] / rows
    # The largest class has a recall of 1 and a precision of `accuracy`. All other classes count as 0 in macro means.
    f1 = 2 * accuracy / (1 + accuracy)
    return MajorityMetrics(
        label=label,
        accuracy=accuracy,
        recall=1 / present,
        precision=accuracy / present,
        f1=f1 / present,
        f1_of_label=f1,
    )


def calibration_of(outputs: Mapping[str, SplitOutputs], temperature: float, applied: bool) -> Calibration:
    """Return the calibration errors of each split with and without `temperature`, and those of right probabilities."""
    errors = {}
    for split, rows in outputs.items():
        # A temperature of 1 leaves the logits as they are.
        before, after = (softmax(rows.logits / scale) for scale in (1.0, temperature))
        errors[split] = CalibrationErrors(
            before=calibration_error(rows.labels, before),
            after=calibration_error(rows.labels, after),
            before_by_chance=calibration_error_by_chance(before),
            after_by_chance=calibration_error_by_chance(after),
        )
    return Calibration(temperature=temperature, applied=applied, ece=errors)
