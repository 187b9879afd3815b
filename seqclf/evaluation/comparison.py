"""Comparison of the model with the order-blind baseline on the same rows: differences with 95 % confidence intervals.

A metric without a threshold decides: the average precision of the positive label, or its mean over classes. Class
weights or another threshold would change recall and accuracy, and with many classes most AUROCs are close to 1.

Both models are right and wrong on mostly the same rows, so they are compared row by row, and the difference may be
significant although the intervals of both scores overlap. All intervals extend the Clopper-Pearson interval
(Learned-Miller and Thomas 2020, see `intervals.py`): the observed rows get random weights, and one extra row has the
worst (or best) possible value.

- Accuracy: the mean of the row differences: 1 if only the model is right, -1 if only the baseline is right, else 0.
- Macro recall: the mean over classes of the mean row difference in each class. The rows get random weights within each
  class, and the extra row is added to the class where it changes the mean most. With one in every class, the interval
  for 30 classes would be twice as wide.
- Average precision, and recall at an equal number of alerts: from the weighted rows of both models. The extra row is a
  positive row that only one of the models finds.
- With weights of rows, all but recall at an equal number of alerts are weighted. In place of rows, their weights count,
  scaled to Kish's effective number of rows (of the class where it is lowest, if the classes must keep their ratio).
- Mean average precision over classes: a normal interval, whose variance follows from the influence of each row on the
  difference. The extra row is added to the class where it changes the mean most.

For grouped rows, all counts are divided by the design effect of the difference (see `design_effect.py`). If the rows of
a class come from too few groups, the interval is -1 to 1, and no model counts as better.

Tango's score interval of paired proportions covers only 93 % in some cases; a normal approximation and a bootstrap have
the width 0 if the models agree on every row. `tests/evaluation/test_comparison.py` simulates the coverage of every
method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import numpy as np

from seqclf.evaluation.design_effect import (
    MIN_KISH,
    WORST_OF_DIFFERENCE,
    average_precision_influence,
    class_shares,
    design_effect,
    effective_groups,
    kish_weights,
    mean_effect,
    mean_of_classes_effect,
    or_ones,
    ranking_effect,
)
from seqclf.evaluation.intervals import draw_count
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.ranking import recall_of_highest
from seqclf.evaluation.ranking_comparison import (
    TAIL,
    TINY,
    average_precisions,
    equal_alerts_influence,
    merged_levels,
    recalls_at_alerts,
    weighted_limits,
)
from seqclf.system.json_result import JsonResult

EQUAL_ALERTS = "recall_at_equal_alerts"  # name of the metric that judges a threshold
NEARLY_PERFECT = 0.9  # a metric of at least this value counts as nearly perfect
Z = 1.959964  # two-sided 95 % quantile of the normal distribution, in standard deviations


class RowPredictions(NamedTuple):
    """Predictions of a model for N rows. `predicted`: (N,) class numbers.

    `scores`: (N, C), None if unknown; only the ranking of rows by the score of each class matters.
    """

    predicted: np.ndarray
    scores: np.ndarray | None


@dataclass(frozen=True, kw_only=True)
class Comparison(JsonResult):
    """A metric of the model and of the baseline on the same rows, and the 95 % interval of their difference.

    `metric`: one of `average_precision`, `recall_at_equal_alerts`, `accuracy` and `recall` (the macro mean).
    `too_few_groups`: True if the interval is therefore -1 to 1. `label`: label of the alerts, None for the positive
    label and for other metrics. `alerts_per_positive`: alerts divided by rows with the label, None for other metrics.
    `weighted`: True if the rows count by their weights.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"too_few_groups", "label", "alerts_per_positive", "weighted"})

    metric: str
    model: float
    baseline: float
    difference: float
    low: float
    high: float
    too_few_groups: bool | None = None
    label: str | None = None
    alerts_per_positive: float | None = None
    weighted: bool | None = None

    @property
    def title(self) -> str:
        """Name of the metric in words, with the label."""
        name = metric_title(self.metric) + ("" if self.label is None else f" of {self.label}")
        return f"weighted {name}" if self.weighted else name

    @property
    def is_better(self) -> bool:
        """True if the whole interval is above 0, so the model beats the baseline."""
        return self.low > 0

    @property
    def is_worse(self) -> bool:
        """True if the whole interval is below 0, so the baseline beats the model."""
        return self.high < 0

    @property
    def can_be_shown(self) -> bool:
        """True if these rows are enough to show that a perfect model is better than the baseline."""
        most = min(1.0, self.alerts_per_positive or 1.0)  # recall of a perfect model with as many alerts
        return self.is_better or self.baseline + (self.difference - self.low) < most

    @property
    def is_too_easy(self) -> bool:
        """True if both models are nearly perfect and these rows cannot show which model is better."""
        # With enough alerts every model finds all rows, so nearly all alerts must be right.
        nearly = NEARLY_PERFECT * (self.alerts_per_positive or 1.0)
        return not self.is_worse and not self.can_be_shown and min(self.model, self.baseline) >= nearly


def deciding_metric(monitor: str | None) -> str:
    """Return the metric that decides between two models. `monitor`: validation metric that chose the epoch, or None."""
    return monitor if monitor == "accuracy" else "average_precision"


def compare_models(
    labels: np.ndarray,
    model: RowPredictions,
    baseline: RowPredictions,
    positive: int | None = None,
    monitor: str | None = None,
    group: np.ndarray | None = None,
    seed: int = 0,
    targets: Mapping[str, int] = MappingProxyType({}),
    weights: np.ndarray | None = None,
) -> list[Comparison]:
    """Compare two models on the same rows. The first comparison decides which model is better.

    `labels`: (N,) class numbers. `positive`: number of the positive class, or None. `monitor`: validation metric that
    chose the epoch. `group`: (N,) codes of groups, None if rows are independent. `targets`: dict label → class number,
    for other labels whose alerts are compared. `weights`: (N,) of the rows, None for equal ones.

    Average precision comes first, because it does not depend on a threshold, unless `monitor` is accuracy. For recall
    at equal alerts, the baseline gets as many alerts as the model.

    >>> labels = np.array([0, 1, 2] * 20)
    >>> constant = RowPredictions(np.zeros(60, np.int64), np.zeros((60, 3)))
    >>> first, second, _ = compare_models(labels, RowPredictions(labels, np.eye(3)[labels]), constant)
    >>> first.metric, round(first.difference, 3), first.is_better
    ('average_precision', 0.667, True)
    """
    labels = labels.astype(np.int64)
    pair = _Pair(labels, model, baseline, group, np.random.default_rng(seed), weights)
    comparisons = [*pair.macro_scores()] if positive is None else [*pair.rankings(positive)]
    for label, code in targets.items():
        comparisons += [replace(entry, label=label) for entry in pair.equal_alerts(code)]
    if monitor == "accuracy":
        return [pair.accuracy(), *comparisons]
    return [*comparisons, pair.accuracy()]


class _Pair(NamedTuple):
    """Predictions of two models for N rows. `group`: (N,) codes of groups, None if rows are independent."""

    labels: np.ndarray
    model: RowPredictions
    baseline: RowPredictions
    group: np.ndarray | None
    generator: np.random.Generator
    weights: np.ndarray | None = None

    def counts(self, codes: np.ndarray, *, keep_ratio: bool = False) -> np.ndarray:
        """Return what each row (N,) counts: 1, or its weight, scaled to the effective number of rows of its class."""
        scaled = kish_weights(self.weights, codes)
        if scaled is None or self.weights is None:
            return np.ones(len(codes))
        factors = scaled[self.weights > 0] / self.weights[self.weights > 0]
        return self.weights * factors.min() if keep_ratio else scaled

    def of_metric(self, metric: str, points: Sequence[float], limits: tuple[float, float] | None) -> Comparison:
        """Return the comparison of a metric in which weights count. `limits`: None for too few groups."""
        found = _unknown(metric, points) if limits is None else _comparison(metric, points, limits)
        return replace(found, weighted=None if self.weights is None else True)

    @property
    def hit_differences(self) -> np.ndarray:
        """(N,): 1 if only the model is right, -1 if only the baseline is right, else 0."""
        right, baseline_right = (
            (predictions.predicted == self.labels).astype(np.int64) for predictions in (self.model, self.baseline)
        )
        return right - baseline_right

    def are_few(self, *parts: np.ndarray) -> bool:
        """True if the rows of any mask (N,) in `parts` come from too few groups for an interval."""
        if self.group is None:
            return False
        weights = or_ones(self.weights, len(self.labels))
        return any(effective_groups(self.group[part], weights[part]) < MIN_KISH for part in parts)

    def accuracy(self) -> Comparison:
        counts = self.counts(np.zeros(len(self.labels), np.int64))
        hits = [predictions.predicted == self.labels for predictions in (self.model, self.baseline)]
        points = [float(hit.mean() if self.weights is None else hit @ counts / counts.sum()) for hit in hits]
        if self.are_few(np.ones(len(self.labels), bool)):
            return self.of_metric("accuracy", points, None)
        difference = self.hit_differences
        effect = mean_effect(difference, self.group, worst=WORST_OF_DIFFERENCE, weights=self.weights)
        return self.of_metric("accuracy", points, mean_difference_limits(difference, self.generator, effect, counts))

    def macro_recall(self) -> Comparison:
        """Compare the mean recall over the classes that have rows."""
        code = np.unique(self.labels, return_inverse=True)[1]
        counts = self.counts(code)
        support = np.bincount(code, counts)
        weighed = support > 0  # rows of a class may all have the weight 0
        difference = self.hit_differences
        points = [
            float(
                (np.bincount(code, (predictions.predicted == self.labels) * counts)[weighed] / support[weighed]).mean()
            )
            for predictions in (self.model, self.baseline)
        ]
        if self.are_few(*(code == number for number in np.flatnonzero(weighed))):
            return self.of_metric("recall", points, None)
        effect = mean_of_classes_effect(difference, code, self.group, worst=WORST_OF_DIFFERENCE, weights=self.weights)
        wins, losses = (np.bincount(code, (sign * difference > 0) * counts)[weighed] for sign in (1, -1))
        limits = _mean_of_classes_limits(wins, losses, support[weighed], self.generator, effect)
        return self.of_metric("recall", points, limits)

    def macro_scores(self) -> Iterator[Comparison]:
        codes = np.unique(self.labels if self.weights is None else self.labels[self.weights > 0])
        if len(codes) > 1:
            yield self.mean_average_precision(codes)
        yield self.macro_recall()

    def mean_average_precision(self, codes: np.ndarray) -> Comparison:
        """Compare the mean over the classes `codes`, each ranked against all other rows."""
        assert self.model.scores is not None and self.baseline.scores is not None, "to be ranked"
        points, influence, most = np.zeros(2), np.zeros(len(self.labels)), []
        counts = self.counts(self.labels)
        for code in codes:
            is_class = self.labels == code
            (of_model, by_model), (of_baseline, by_baseline) = (
                average_precision_influence(is_class, scores[:, code], self.weights)
                for scores in (self.model.scores, self.baseline.scores)
            )
            points += np.array([of_model, of_baseline]) / len(codes)
            influence += (by_model - by_baseline) / len(codes)
            most.append((of_model - of_baseline, min(counts[is_class].sum(), counts[~is_class].sum())))
        if self.are_few(*(self.labels == code for code in codes)):
            return self.of_metric("average_precision", points.tolist(), None)
        effect = 1.0
        if self.group is not None:
            share = class_shares(self.labels, self.weights)
            copies = np.bincount(self.group, share) ** 2
            effect = design_effect(influence, share**2, self.group, copies, WORST_OF_DIFFERENCE)
        half = Z * float(np.sqrt(effect * (influence @ influence)))
        # The extra row is added to the class where it changes the mean most. If the models agree on all rows, the width
        # of the interval comes from the extra row alone.
        worst, best = (
            max((1 + sign * difference) / (rows / effect + 1) for difference, rows in most) / len(codes)
            for sign in (1, -1)
        )
        difference = float(points[0] - points[1])
        limits = difference - half - worst, difference + half + best
        return self.of_metric("average_precision", points.tolist(), limits)

    def rankings(self, positive: int) -> Iterator[Comparison]:
        is_positive = self.labels == positive
        counts = self.counts(is_positive.astype(np.int64), keep_ratio=True)
        if not counts[is_positive].sum() or not counts[~is_positive].sum():
            return
        assert self.model.scores is not None and self.baseline.scores is not None, "a positive class has scores"
        scores = self.model.scores[:, positive], self.baseline.scores[:, positive]
        (precision, influence), (of_baseline, baseline_influence) = (
            average_precision_influence(is_positive, score, self.weights) for score in scores
        )
        few = self.are_few(is_positive, ~is_positive)
        levels = [merged_levels(is_positive, score) for score in scores]
        points = [precision, of_baseline]
        difference = influence - baseline_influence
        effect = ranking_effect(difference, is_positive, self.group, WORST_OF_DIFFERENCE, self.weights)
        limits = None
        if not few:
            limits = weighted_limits(points, is_positive, levels, average_precisions, self.generator, effect, counts)
        yield self.of_metric("average_precision", points, limits)
        yield from self.equal_alerts(positive)

    def equal_alerts(self, code: int) -> Iterator[Comparison]:
        is_positive, is_alert = self.labels == code, self.model.predicted == code
        if is_positive.all() or not is_positive.any() or not is_alert.any():
            return
        assert self.baseline.scores is not None, "to be ranked"
        score, alerts = self.baseline.scores[:, code], int(is_alert.sum())
        points = [float(is_alert[is_positive].mean()), recall_of_highest(is_positive, score, alerts)]
        if self.are_few(is_positive, ~is_positive):
            compared = _unknown(EQUAL_ALERTS, points)
        else:
            # In the ranking of the model, all alerts are the first level, and all other rows are the second level.
            levels = [(~is_alert).astype(np.int64), merged_levels(is_positive, score)]
            influence = equal_alerts_influence(is_positive, is_alert, score)
            effect = ranking_effect(influence, is_positive, self.group, WORST_OF_DIFFERENCE)
            limits = weighted_limits(points, is_positive, levels, recalls_at_alerts, self.generator, effect)
            compared = _comparison(EQUAL_ALERTS, points, limits)
        yield replace(compared, alerts_per_positive=alerts / int(is_positive.sum()))


def mean_difference_limits(
    differences: np.ndarray, generator: np.random.Generator, effect: float = 1.0, counts: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `differences` (N,), which are -1, 0 or 1.

    `effect`: design effect, by which all counts are divided. `counts`: (N,) what each row counts, None for 1.
    """
    counts = or_ones(counts, len(differences))
    wins, losses = (float(counts[sign * differences > 0].sum()) / effect for sign in (1, -1))
    ties = max(0.0, float(counts.sum()) / effect - wins - losses)
    limits = []
    for sign, better, worse in ((1, wins, losses), (-1, losses, wins)):
        # Gamma variables divided by their sum are Dirichlet distributed, and a gamma variable of shape 0 is exactly 0.
        gains, costs, rest = (generator.standard_gamma(count, draw_count(3)) for count in (better, worse + 1, ties))
        limits.append(sign * float(np.quantile((gains - costs) / (gains + costs + rest), TAIL)))
    return limits[0], limits[1]


def _mean_of_classes_limits(
    wins: np.ndarray, losses: np.ndarray, support: np.ndarray, generator: np.random.Generator, effect: float = 1.0
) -> tuple[float, float]:
    """Return the 95 % interval of the mean of (wins - losses) / support over the classes.

    `wins`, `losses`: (K,) rows of each class in which only the model, or only the baseline, is right. `support`: (K,).
    """
    classes, weight = len(support), np.ones(len(support))
    single = support <= 1
    if single.sum() > 1:
        # A class with a single row has no observed variance. Such classes are therefore pooled into one class, which
        # does not change their mean.
        wins, losses, support, weight = (
            np.append(counts[~single], counts[single].sum()) for counts in (wins, losses, support, weight)
        )
    wins, losses, support = wins / effect, losses / effect, support / effect
    # If n rows get random weights, the variance of their mean is only (n - 1) / (n + 1) times the variance of the plain
    # mean.
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
        # One extra row in total is enough, and it is added to the class where it changes the mean most. If the models
        # agree on every row, the extra row makes them differ in only one class.
        loss_by_class = weight * (1 + drawn) * one_more / (total + one_more)
        mean = ((observed + spread * (drawn - observed)) @ weight - loss_by_class.max(axis=1)) / classes
        limits.append(sign * float(np.quantile(mean, TAIL)))
    return limits[0], limits[1]


def _comparison(metric: str, points: Sequence[float], limits: tuple[float, float]) -> Comparison:
    model, baseline = points
    difference = model - baseline
    # In a very narrow interval, random draws may put a limit on the wrong side of the observed difference.
    low, high = max(-1.0, min(limits[0], difference)), min(1.0, max(limits[1], difference))
    return Comparison(
        metric=metric, model=model, baseline=baseline, difference=difference, low=float(low), high=float(high)
    )


def _unknown(metric: str, points: Sequence[float]) -> Comparison:
    """Return a comparison with the interval -1 to 1, because the rows come from too few groups."""
    return replace(_comparison(metric, points, (-1.0, 1.0)), too_few_groups=True)
