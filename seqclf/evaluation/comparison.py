"""Comparison of the model with the order-blind baseline on the same rows: differences with 95 % confidence intervals.

A score that depends on no threshold decides: average precision of the positive label, or its mean over the classes
where there is none. Recall and accuracy follow from a decision too, and class weights alone, or a threshold, would
change them. AUROC is so near 1 for most models of many classes that it tells few of them apart.

Both models are right and wrong on much the same rows, so they are compared row by row: a row on which they agree says
nothing about the difference, which may be certain although the intervals of the two scores overlap. All intervals
extend that of Clopper and Pearson as in `intervals.py` (Learned-Miller and Thomas 2020): the observed rows, weighted at
random, and one more at the worst, or best, possible value.

- Accuracy: the mean of 1 where only the model is right, -1 where only the baseline is, else 0.
- Macro recall: the mean of such differences over classes. The rows of each class are weighted, and one more is in the
  class where it costs most. One more row in every class would make the interval of 30 classes twice as wide.
- Average precision, and recall at an equal number of alerts: computed anew from the weighted rows of both models, and
  one more positive row that only one of them finds.
- Mean average precision over classes: normal, by the influences of the rows on the difference, and one more row in the
  class where it costs most.

Where rows come in groups, all counts are divided by the design effect of the difference (see `design_effect.py`). Where
a class lies in too few groups, there is no interval and no verdict.

Tango's score interval of paired proportions covers 0.93 in places. A normal approximation or a bootstrap has no width
where the models agree on every row.
`tests/evaluation/test_comparison.py` simulates the coverage of every method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from seqclf.evaluation.design_effect import (
    MIN_KISH,
    WORST_OF_DIFFERENCE,
    average_precision_influence,
    design_effect,
    effective_groups,
    mean_effect,
    mean_of_classes_effect,
    ranking_effect,
)
from seqclf.evaluation.intervals import CONFIDENCE, MAX_LEVELS, MAX_NUMBERS, draw_count, score_levels
from seqclf.evaluation.ranking import recall_of_highest
from seqclf.system.json_result import JsonResult

TAIL = (1 - CONFIDENCE) / 2
# Weights of the positive and of the negative rows by level, (R, L) each: those of one ranking.
Weights = tuple[np.ndarray, np.ndarray]
NEARLY_PERFECT = 0.9  # of a metric
TINY = 1e-12  # far below the weight of any row
Z = 1.959964  # standard deviations, the normal quantile of a two-sided 95 %
NEAR_ROWS = 25  # on either side of a threshold, which tell the share of positive rows there


class RowPredictions(NamedTuple):
    """Predictions of a model for N rows. `predicted`: (N,) class numbers.

    `scores`: (N, C), of which only the order within each column matters; None if they are not known.
    """

    predicted: np.ndarray
    scores: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class MetricComparison(JsonResult):
    """A metric of the model and of the baseline on the same rows, and the 95 % interval of their difference.

    `metric`: `average_precision`, `recall_at_equal_alerts`, `accuracy`, or `recall` (the macro mean). Where rows come
    in groups and `too_few_groups` decide the metric, nothing is known: -1 to 1.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"too_few_groups"})

    metric: str
    model: float
    baseline: float
    difference: float
    low: float
    high: float
    too_few_groups: bool | None = None

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


def deciding_metric(monitor: str) -> str:
    """Return the metric that decides between two models. `monitor`: the one that chose the epoch."""
    return monitor if monitor == "accuracy" else "average_precision"


def compare_models(
    labels: np.ndarray,
    model: RowPredictions,
    baseline: RowPredictions,
    positive: int | None = None,
    monitor: str = "recall",
    group: np.ndarray | None = None,
    seed: int = 0,
) -> list[MetricComparison]:
    """Compare two models on the same rows. The first of the comparisons is the one that decides.

    `labels`: (N,) class numbers. `positive`: number of the positive class, None without one. `monitor`: the metric that
    chose the epoch. `group`: (N,) codes of the groups of the rows, None where each row stands alone.

    Average precision decides, since it depends on the threshold of neither model; accuracy, where it chose the epoch.
    Recall at equal alerts says the same in rows: the recall of the baseline when it alerts on as many rows as the model
    does.

    >>> labels = np.array([0, 1, 2] * 20)
    >>> constant = RowPredictions(np.zeros(60, np.int64), np.zeros((60, 3)))
    >>> first, second, _ = compare_models(labels, RowPredictions(labels, np.eye(3)[labels]), constant)
    >>> first.metric, round(first.difference, 3), first.is_better
    ('average_precision', 0.667, True)
    """
    pair = _Pair(labels.astype(np.int64), model, baseline, group, np.random.default_rng(seed))
    comparisons = [*pair.macro_scores()] if positive is None else [*pair.rankings(positive)]
    if monitor == "accuracy":
        return [pair.accuracy(), *comparisons]
    return [*comparisons, pair.accuracy()]


class _Pair(NamedTuple):
    """Two models on the same N rows. `group`: (N,) codes, None where each row stands alone."""

    labels: np.ndarray
    model: RowPredictions
    baseline: RowPredictions
    group: np.ndarray | None
    generator: np.random.Generator

    @property
    def hit_differences(self) -> np.ndarray:
        """(N,): 1 where only the model is right, -1 where only the baseline is, else 0."""
        right, baseline_right = (
            (predictions.predicted == self.labels).astype(np.int64) for predictions in (self.model, self.baseline)
        )
        return right - baseline_right

    def are_few(self, *parts: np.ndarray) -> bool:
        """Return True if the rows of a part, (N,) bool, lie in too few groups for an interval."""
        return self.group is not None and any(effective_groups(self.group[part]) < MIN_KISH for part in parts)

    def accuracy(self) -> MetricComparison:
        """Compare the accuracy."""
        points = [float((predictions.predicted == self.labels).mean()) for predictions in (self.model, self.baseline)]
        if self.are_few(np.ones(len(self.labels), bool)):
            return _unknown("accuracy", points)
        difference = self.hit_differences
        effect = mean_effect(difference, self.group, worst=WORST_OF_DIFFERENCE)
        return _comparison("accuracy", points, mean_difference_limits(difference, self.generator, effect))

    def macro_recall(self) -> MetricComparison:
        """Compare the mean recall over the classes that have rows."""
        _, code, support = np.unique(self.labels, return_inverse=True, return_counts=True)
        difference = self.hit_differences
        points = [
            float((np.bincount(code, predictions.predicted == self.labels) / support).mean())
            for predictions in (self.model, self.baseline)
        ]
        if self.are_few(*(code == number for number in range(len(support)))):
            return _unknown("recall", points)
        effect = mean_of_classes_effect(difference, code, self.group, worst=WORST_OF_DIFFERENCE)
        wins, losses = (np.bincount(code, weights=sign * difference > 0) for sign in (1, -1))
        return _comparison("recall", points, _mean_of_classes_limits(wins, losses, support, self.generator, effect))

    def macro_scores(self) -> Iterator[MetricComparison]:
        """Compare the mean average precision over the classes, where it is defined, and macro recall."""
        codes = np.unique(self.labels)
        if len(codes) > 1:
            yield self.mean_average_precision(codes)
        yield self.macro_recall()

    def mean_average_precision(self, codes: np.ndarray) -> MetricComparison:
        """Compare the mean average precision over the classes `codes`, each against the rest."""
        assert self.model.scores is not None and self.baseline.scores is not None, "to be ranked"
        points, influence, most = np.zeros(2), np.zeros(len(self.labels)), []
        for code in codes:
            is_class = self.labels == code
            (of_model, by_model), (of_baseline, by_baseline) = (
                average_precision_influence(is_class, scores[:, code])
                for scores in (self.model.scores, self.baseline.scores)
            )
            points += np.array([of_model, of_baseline]) / len(codes)
            influence += (by_model - by_baseline) / len(codes)
            most.append((of_model - of_baseline, min(is_class.sum(), (~is_class).sum())))
        if self.are_few(*(self.labels == code for code in codes)):
            return _unknown("average_precision", points.tolist())
        effect = 1.0
        if self.group is not None:
            share = 1 / np.bincount(self.labels)[self.labels]
            copies = np.bincount(self.group, share) ** 2
            effect = design_effect(influence, share**2, self.group, copies, WORST_OF_DIFFERENCE)
        half = Z * float(np.sqrt(effect * (influence @ influence)))
        # One row more, of the class where it costs most: where the models agree on all rows, it is all that is unknown.
        worst, best = (
            max((1 + sign * difference) / (rows / effect + 1) for difference, rows in most) / len(codes)
            for sign in (1, -1)
        )
        difference = float(points[0] - points[1])
        return _comparison("average_precision", points.tolist(), (difference - half - worst, difference + half + best))

    def rankings(self, positive: int) -> Iterator[MetricComparison]:
        """Compare average precision, and recall at the number of alerts of the model, where they are defined."""
        is_positive = self.labels == positive
        if is_positive.all() or not is_positive.any():
            return
        assert self.model.scores is not None and self.baseline.scores is not None, "a positive class has scores"
        scores = self.model.scores[:, positive], self.baseline.scores[:, positive]
        (precision, influence), (of_baseline, baseline_influence) = (
            average_precision_influence(is_positive, score) for score in scores
        )
        few = self.are_few(is_positive, ~is_positive)
        levels = [_score_levels(is_positive, score) for score in scores]
        points = [precision, of_baseline]
        effect = ranking_effect(influence - baseline_influence, is_positive, self.group, WORST_OF_DIFFERENCE)
        yield (
            _unknown("average_precision", points)
            if few
            else _compare_weighted(
                "average_precision", points, is_positive, levels, _average_precisions, self.generator, effect
            )
        )
        is_alert = self.model.predicted == positive
        if not is_alert.any():
            return
        alerts = int(is_alert.sum())
        points = [float(is_alert[is_positive].mean()), recall_of_highest(is_positive, scores[1], alerts)]
        # The alerts of the model are its first level, all other rows are its second.
        levels[0] = (~is_alert).astype(np.int64)
        influence = _equal_alerts_influence(is_positive, is_alert, scores[1])
        effect = ranking_effect(influence, is_positive, self.group, WORST_OF_DIFFERENCE)
        yield (
            _unknown("recall_at_equal_alerts", points)
            if few
            else _compare_weighted(
                "recall_at_equal_alerts", points, is_positive, levels, _recalls_at_alerts, self.generator, effect
            )
        )


def _equal_alerts_influence(is_positive: np.ndarray, is_alert: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Influence (N,) of each row on the recall of alerts less that of as many rows of the highest `score`."""
    order = np.argsort(-score, kind="stable")
    alerts, positives = int(is_alert.sum()), int(is_positive.sum())
    is_highest = np.zeros(len(score), bool)
    is_highest[order[:alerts]] = True
    # One alert more moves the threshold of the score, by a row that is positive with the share of those around it.
    around = order[max(0, alerts - NEAR_ROWS) : alerts + NEAR_ROWS]
    at_threshold = float(is_positive[around].mean())
    difference = is_alert.astype(np.float64) - is_highest
    mean = float(difference[is_positive].mean())
    return (is_positive * (difference - mean) - at_threshold * difference) / positives


def mean_difference_limits(
    differences: np.ndarray, generator: np.random.Generator, effect: float = 1.0
) -> tuple[float, float]:
    """Interval of the mean of `differences` (N,), each of which is -1, 0 or 1. `effect`: the design effect."""
    wins, losses = (float((sign * differences > 0).sum()) / effect for sign in (1, -1))
    ties = max(0.0, len(differences) / effect - wins - losses)
    limits = []
    for sign, better, worse in ((1, wins, losses), (-1, losses, wins)):
        # Normalised gamma variables are Dirichlet distributed, and a shape of 0 gives exactly 0.
        gains, costs, rest = (generator.standard_gamma(count, draw_count(3)) for count in (better, worse + 1, ties))
        limits.append(sign * float(np.quantile((gains - costs) / (gains + costs + rest), TAIL)))
    return limits[0], limits[1]


def _mean_of_classes_limits(
    wins: np.ndarray, losses: np.ndarray, support: np.ndarray, generator: np.random.Generator, effect: float = 1.0
) -> tuple[float, float]:
    """Interval of the mean over classes of (wins - losses) / support, (K,) each. `effect`: the design effect."""
    classes, weight = len(support), np.ones(len(support))
    single = support == 1
    if single.sum() > 1:
        # One row shows no variance. Together these rows do, and their mean is that of their classes.
        wins, losses, support, weight = (
            np.append(counts[~single], counts[single].sum()) for counts in (wins, losses, support, weight)
        )
    wins, losses, support = wins / effect, losses / effect, support / effect
    # Weights drawn at random vary by the share (n - 1) / (n + 1) of the variance of a mean of n rows.
    spread = np.sqrt((support + 1) / np.maximum(support - 1, 1))
    draws = draw_count(3 * len(support))
    limits = []
    for sign, better, worse in ((1, wins, losses), (-1, losses, wins)):
        gains, costs, ties = (
            generator.standard_gamma(counts, (draws, len(support)))
            for counts in (better, worse, np.maximum(support - wins - losses, 0))
        )
        total = np.maximum(gains + costs + ties, TINY)
        observed, drawn = (better - worse) / support, (gains - costs) / total
        one_more = generator.standard_exponential((draws, 1))
        # If the models agree on every row, the difference is largest where the classes with most rows agree for certain
        # and only one differs. So there is one more row in all, in the class where it costs most.
        loss_by_class = weight * (1 + drawn) * one_more / (total + one_more)
        mean = ((observed + spread * (drawn - observed)) @ weight - loss_by_class.max(axis=1)) / classes
        limits.append(sign * float(np.quantile(mean, TAIL)))
    return limits[0], limits[1]


def _score_levels(is_positive: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the level (N,) of each row by descending score. Rows of a level are ties."""
    level, count = score_levels(is_positive, score)
    return level * MAX_LEVELS // count if count > MAX_LEVELS else level


def _compare_weighted(
    metric: str,
    points: Sequence[float],
    is_positive: np.ndarray,
    levels: Sequence[np.ndarray],
    values: Callable[[Weights, Weights], tuple[np.ndarray, np.ndarray]],
    generator: np.random.Generator,
    effect: float,
) -> MetricComparison:
    """Compare a metric of two rankings, with an interval from random weights of the rows.

    `points`: the metric of the model and of the baseline. `levels`: of the rows in each ranking, (N,) each. `values`:
    the metric of both, (R,) each, from weights. `effect`: the design effect.
    """
    # Rows of one kind that are in the same levels of both rankings share a cell, whose weight is that of their sum.
    cells, counts = np.unique(np.stack([~is_positive, *levels]), axis=1, return_counts=True)
    positives = int((cells[0] == 0).sum())
    of_model, of_baseline = values(*_summed_by_level(counts[None].astype(np.float64), cells[1:], positives))
    # Coarser levels move the metric a little. The draws are moved back by as much.
    shift = points[0] - points[1] - float(of_model[0] - of_baseline[0])
    draws: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for size in _chunks(draw_count(len(counts)), len(counts)):
        for side, extra in ((0, -1), (1, 1)):
            weights = generator.standard_gamma(counts / effect, (size, len(counts)))
            one_more = generator.standard_exponential(size)  # a positive row that only one model finds, at the top
            total = weights[:, :positives].sum(axis=1)
            of_model, of_baseline = values(*_summed_by_level(weights, cells[1:], positives))
            draws[side].append(((of_model - of_baseline + shift) * total + extra * one_more) / (total + one_more))
    low, high = np.concatenate(draws[0]), np.concatenate(draws[1])
    limits = float(np.quantile(low, TAIL)), float(np.quantile(high, 1 - TAIL))
    return _comparison(metric, points, limits)


def _chunks(draws: int, cells: int) -> Iterator[int]:
    """Split a number of draws, so that those of one part need little memory."""
    most = max(1, MAX_NUMBERS // cells)
    for start in range(0, draws, most):
        yield min(most, draws - start)


def _summed_by_level(weights: np.ndarray, levels: np.ndarray, positives: int) -> tuple[Weights, Weights]:
    """Sum the weights (R, U) of cells by level, in the ranking of the model and in that of the baseline.

    `levels`: (2, U) of each cell. `positives`: number of the first cells, which hold the positive rows.
    """
    from scipy import sparse

    def summed(part: slice, level: np.ndarray) -> np.ndarray:
        cells = len(level[part])
        matrix = sparse.csr_matrix((np.ones(cells), (np.arange(cells), level[part])), (cells, int(level.max()) + 1))
        return np.asarray(weights[:, part] @ matrix)

    positive, negative = slice(0, positives), slice(positives, None)
    of_model, of_baseline = ((summed(positive, level), summed(negative, level)) for level in levels)
    return of_model, of_baseline


def _average_precisions(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Average precision (R,) of both rankings."""

    def average_precision(positives: np.ndarray, negatives: np.ndarray) -> np.ndarray:
        true_alerts, false_alerts = positives.cumsum(axis=1), negatives.cumsum(axis=1)
        precision = true_alerts / np.maximum(true_alerts + false_alerts, TINY)
        return np.asarray((positives * precision).sum(axis=1) / np.maximum(true_alerts[:, -1], TINY))

    return average_precision(*model), average_precision(*baseline)


def _recalls_at_alerts(model: Weights, baseline: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Recall (R,) of the model, whose first level are its alerts, and of the baseline at as many alerts."""
    alerts = model[0][:, :1] + model[1][:, :1]
    total = np.maximum(model[0].sum(axis=1), TINY)
    rows = baseline[0] + baseline[1]
    before = rows.cumsum(axis=1) - rows
    # The share of each level that is among as many alerts. Ties at the last rank count with their average.
    share = np.clip((alerts - before) / np.maximum(rows, TINY), 0, 1)
    return model[0][:, 0] / total, (baseline[0] * share).sum(axis=1) / total


def _comparison(metric: str, points: Sequence[float], limits: tuple[float, float]) -> MetricComparison:
    model, baseline = points
    difference = model - baseline
    # Quantiles of finite draws may pass the observed difference by chance where an interval is very narrow.
    low, high = max(-1.0, min(limits[0], difference)), min(1.0, max(limits[1], difference))
    return MetricComparison(
        metric=metric, model=model, baseline=baseline, difference=difference, low=float(low), high=float(high)
    )


def _unknown(metric: str, points: Sequence[float]) -> MetricComparison:
    """The comparison of models that too few groups tell apart."""
    return replace(_comparison(metric, points, (-1.0, 1.0)), too_few_groups=True)
