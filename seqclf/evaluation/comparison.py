"""Comparison of the model with the order-blind baseline on the same rows: differences with 95 % confidence intervals.

Both models are right and wrong on much the same rows, so they are compared row by row: a row on which they agree says
nothing about the difference, which may be certain although the intervals of the two scores overlap. All intervals
extend that of Clopper and Pearson as in `intervals.py` (Learned-Miller and Thomas 2020): the observed rows, weighted at
random, and one more at the worst, or best, possible value.

- Accuracy: the mean of 1 where only the model is right, -1 where only the baseline is, else 0.
- Macro recall: the mean of such differences over classes. The rows of each class are weighted, and one more is in the
  class where it costs most. One more row in every class would make the interval of 30 classes twice as wide.
- Average precision, and recall at an equal number of alerts: computed anew from the weighted rows of both models, and
  one more positive row that only one of them finds.

Tango's score interval of paired proportions covers 0.93 in places. A normal approximation or a bootstrap has no width
where the models agree on every row.
`tests/evaluation/test_comparison.py` simulates the coverage of every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqclf.evaluation.intervals import CONFIDENCE, MAX_GROUPS, MAX_NUMBERS, draw_count, group_by_score
from seqclf.evaluation.ranking import ranking_metrics, recall_of_highest
from seqclf.system.json_result import JsonResult

TAIL = (1 - CONFIDENCE) / 2
# Weights of the positive and of the negative rows by group, (R, G) each: those of one ranking.
Weights = tuple[np.ndarray, np.ndarray]
NEARLY_PERFECT = 0.9  # of a metric
TINY = 1e-12  # far below the weight of any row


class RowPredictions(NamedTuple):
    """Predictions of a model for N rows. `predicted`: (N,) class numbers.

    `score`: (N,) of the positive label, None without one. Only its order matters.
    """

    predicted: np.ndarray
    score: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class MetricComparison(JsonResult):
    """A metric of the model and of the baseline on the same rows, and the 95 % interval of their difference.

    `metric`: `average_precision`, `recall_at_equal_alerts`, `accuracy`, or `recall` (the macro mean).
    """

    metric: str
    model: float
    baseline: float
    difference: float
    low: float
    high: float

    @property
    def is_better(self) -> bool:
        """True if the interval says that the model beats the baseline."""
        return self.low > 0

    @property
    def is_worse(self) -> bool:
        """True if the interval says that the baseline beats the model."""
        return self.high < 0

    @property
    def can_be_shown(self) -> bool:
        """True if rows of this kind and number would show that a perfect model is better."""
        return self.is_better or self.baseline + (self.difference - self.low) < 1

    @property
    def is_too_easy(self) -> bool:
        """True if both models are nearly perfect, so that these rows cannot tell which one is better."""
        return not self.is_worse and not self.can_be_shown and min(self.model, self.baseline) >= NEARLY_PERFECT


def compare_models(
    labels: np.ndarray,
    model: RowPredictions,
    baseline: RowPredictions,
    positive: int | None = None,
    monitor: str = "recall",
    seed: int = 0,
) -> list[MetricComparison]:
    """Compare two models on the same rows. The first of the comparisons is the one that decides.

    `labels`: (N,) class numbers. `positive`: number of the positive class, None without one. `monitor`: the metric that
    chose the epoch.

    With a positive class average precision decides, since it depends on the threshold of neither model. Recall at equal
    alerts says the same in rows: the recall of the baseline when it alerts on as many rows as the model does. Without a
    positive class macro recall decides. Accuracy decides where it chose the epoch.

    >>> labels = np.array([0, 1, 2] * 20)
    >>> constant = RowPredictions(np.zeros(60, np.int64), None)
    >>> first, second = compare_models(labels, RowPredictions(labels, None), constant)
    >>> first.metric, round(first.difference, 3), first.is_better
    ('recall', 0.667, True)
    """
    generator = np.random.default_rng(seed)
    labels = labels.astype(np.int64)
    right, baseline_right = ((predictions.predicted == labels).astype(np.int64) for predictions in (model, baseline))
    comparisons = [_compare_accuracy(right, baseline_right, generator)]
    if positive is None:
        comparisons.append(_compare_macro_recall(labels, right, baseline_right, generator))
    else:
        comparisons += _compare_rankings(labels == positive, model, baseline, positive, generator)
    if monitor == "accuracy":
        return comparisons
    return [*comparisons[1:], comparisons[0]]


def _compare_accuracy(model: np.ndarray, baseline: np.ndarray, generator: np.random.Generator) -> MetricComparison:
    """Compare the hits (N,) of two models: 1 where a row is right, else 0."""
    limits = mean_difference_limits(model - baseline, generator)
    return _comparison("accuracy", float(model.mean()), float(baseline.mean()), limits)


def mean_difference_limits(differences: np.ndarray, generator: np.random.Generator) -> tuple[float, float]:
    """Interval of the mean of `differences` (N,), each of which is -1, 0 or 1."""
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    ties = len(differences) - wins - losses
    limits = []
    for sign, better, worse in ((1, wins, losses), (-1, losses, wins)):
        # Normalised gamma variables are Dirichlet distributed, and a shape of 0 gives exactly 0.
        gains, costs, rest = (generator.standard_gamma(count, draw_count(3)) for count in (better, worse + 1, ties))
        limits.append(sign * float(np.quantile((gains - costs) / (gains + costs + rest), TAIL)))
    return limits[0], limits[1]


def _compare_macro_recall(
    labels: np.ndarray, model: np.ndarray, baseline: np.ndarray, generator: np.random.Generator
) -> MetricComparison:
    """Compare the mean recall over the classes that have rows. `model`, `baseline`: hits (N,)."""
    _, code, support = np.unique(labels, return_inverse=True, return_counts=True)
    recalls = [np.bincount(code, weights=hits) / support for hits in (model, baseline)]
    wins, losses = (np.bincount(code, weights=sign * (model - baseline) > 0) for sign in (1, -1))
    limits = _mean_of_classes_limits(wins, losses, support, generator)
    return _comparison("recall", float(recalls[0].mean()), float(recalls[1].mean()), limits)


def _mean_of_classes_limits(
    wins: np.ndarray, losses: np.ndarray, support: np.ndarray, generator: np.random.Generator
) -> tuple[float, float]:
    """Interval of the mean over classes of (wins - losses) / support, (K,) each."""
    classes, weight = len(support), np.ones(len(support))
    single = support == 1
    if single.sum() > 1:
        # One row shows no variance. Together these rows do, and their mean is that of their classes.
        wins, losses, support, weight = (
            np.append(counts[~single], counts[single].sum()) for counts in (wins, losses, support, weight)
        )
    # Weights drawn at random vary by the share (n - 1) / (n + 1) of the variance of a mean of n rows.
    spread = np.sqrt((support + 1) / np.maximum(support - 1, 1))
    draws = draw_count(3 * len(support))
    limits = []
    for sign, better, worse in ((1, wins, losses), (-1, losses, wins)):
        gains, costs, ties = (
            generator.standard_gamma(counts, (draws, len(support)))
            for counts in (better, worse, support - wins - losses)
        )
        total = gains + costs + ties
        observed, drawn = (better - worse) / support, (gains - costs) / total
        one_more = generator.standard_exponential((draws, 1))
        # If the models agree on every row, the difference is largest where the classes with most rows agree for certain
        # and only one differs. So there is one more row in all, in the class where it costs most.
        loss_by_class = weight * (1 + drawn) * one_more / (total + one_more)
        mean = ((observed + spread * (drawn - observed)) @ weight - loss_by_class.max(axis=1)) / classes
        limits.append(sign * float(np.quantile(mean, TAIL)))
    return limits[0], limits[1]


def _compare_rankings(
    is_positive: np.ndarray,
    model: RowPredictions,
    baseline: RowPredictions,
    positive: int,
    generator: np.random.Generator,
) -> Iterator[MetricComparison]:
    """Compare average precision, and recall at the number of alerts of the model, where they are defined."""
    if is_positive.all() or not is_positive.any():
        return
    assert model.score is not None and baseline.score is not None, "a positive class has scores"
    precisions = [
        ranking_metrics(is_positive.astype(np.int64), np.stack([-score, score], axis=1), 1)["average_precision"] or 0.0
        for score in (model.score, baseline.score)
    ]
    groups = [_score_groups(is_positive, score) for score in (model.score, baseline.score)]
    yield _compare_weighted("average_precision", precisions, is_positive, groups, _average_precisions, generator)
    is_alert = model.predicted == positive
    if is_alert.any():
        recalls = [
            float(is_alert[is_positive].mean()),
            recall_of_highest(is_positive, baseline.score, int(is_alert.sum())),
        ]
        # The alerts of the model are its first group, all other rows are its second.
        groups[0] = (~is_alert).astype(np.int64)
        yield _compare_weighted("recall_at_equal_alerts", recalls, is_positive, groups, _recalls_at_alerts, generator)


def _score_groups(is_positive: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the group (N,) of each row by descending score. Rows of a group are ties."""
    group, count = group_by_score(is_positive, score)
    return group * MAX_GROUPS // count if count > MAX_GROUPS else group


def _compare_weighted(
    metric: str,
    points: Sequence[float],
    is_positive: np.ndarray,
    groups: Sequence[np.ndarray],
    values: Callable[[Weights, Weights], tuple[np.ndarray, np.ndarray]],
    generator: np.random.Generator,
) -> MetricComparison:
    """Compare a metric of two rankings, with an interval from random weights of the rows.

    `points`: the metric of the model and of the baseline. `groups`: of the rows in each ranking, (N,) each. `values`:
    the metric of both, (R,) each, from weights.
    """
    # Rows of one kind that are in the same groups of both rankings share a cell, whose weight is that of their sum.
    cells, counts = np.unique(np.stack([~is_positive, *groups]), axis=1, return_counts=True)
    positives = int((cells[0] == 0).sum())
    of_model, of_baseline = values(*_grouped(counts[None].astype(np.float64), cells[1:], positives))
    # Coarser groups move the metric a little. The draws are moved back by as much.
    shift = points[0] - points[1] - float(of_model[0] - of_baseline[0])
    draws: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for size in _chunks(draw_count(len(counts)), len(counts)):
        for side, extra in ((0, -1), (1, 1)):
            weights = generator.standard_gamma(counts, (size, len(counts)))
            one_more = generator.standard_exponential(size)  # a positive row that only one model finds, at the top
            total = weights[:, :positives].sum(axis=1)
            of_model, of_baseline = values(*_grouped(weights, cells[1:], positives))
            draws[side].append(((of_model - of_baseline + shift) * total + extra * one_more) / (total + one_more))
    low, high = np.concatenate(draws[0]), np.concatenate(draws[1])
    limits = float(np.quantile(low, TAIL)), float(np.quantile(high, 1 - TAIL))
    return _comparison(metric, points[0], points[1], limits)


def _chunks(draws: int, cells: int) -> Iterator[int]:
    """Split a number of draws, so that those of one part need little memory."""
    most = max(1, MAX_NUMBERS // cells)
    for start in range(0, draws, most):
        yield min(most, draws - start)


def _grouped(weights: np.ndarray, groups: np.ndarray, positives: int) -> tuple[Weights, Weights]:
    """Sum the weights (R, U) of cells by group, in the ranking of the model and in that of the baseline.

    `groups`: (2, U) of each cell. `positives`: number of the first cells, which hold the positive rows.
    """
    from scipy import sparse

    def summed(part: slice, group: np.ndarray) -> np.ndarray:
        cells = len(group[part])
        matrix = sparse.csr_matrix((np.ones(cells), (np.arange(cells), group[part])), (cells, int(group.max()) + 1))
        return np.asarray(weights[:, part] @ matrix)

    positive, negative = slice(0, positives), slice(positives, None)
    of_model, of_baseline = ((summed(positive, group), summed(negative, group)) for group in groups)
    return of_model, of_baseline


def _average_precisions(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Average precision (R,) of both rankings."""

    def average_precision(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
        true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
        precision = true_alerts / np.maximum(true_alerts + false_alerts, TINY)
        return np.asarray((positives * precision).sum(axis=1) / true_alerts[:, -1])

    return average_precision(*model), average_precision(*baseline)


def _recalls_at_alerts(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Recall (R,) of the model, whose first group are its alerts, and of the baseline at as many alerts."""
    alerts = model[0][:, :1] + model[1][:, :1]
    total = model[0].sum(axis=1)
    rows = baseline[0] + baseline[1]
    before = rows.cumsum(axis=1) - rows
    # The share of each group that is among as many alerts. Ties at the last rank count with their average.
    share = np.clip((alerts - before) / np.maximum(rows, TINY), 0, 1)
    return model[0][:, 0] / total, (baseline[0] * share).sum(axis=1) / total


def _comparison(metric: str, model: float, baseline: float, limits: tuple[float, float]) -> MetricComparison:
    difference = model - baseline
    # Quantiles of finite draws may pass the observed difference by chance where an interval is very narrow.
    low, high = max(-1.0, min(limits[0], difference)), min(1.0, max(limits[1], difference))
    return MetricComparison(
        metric=metric, model=model, baseline=baseline, difference=difference, low=float(low), high=float(high)
    )
