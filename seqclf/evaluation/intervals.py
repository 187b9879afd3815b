"""95 % confidence intervals: Clopper-Pearson for proportions, and its extension to other metrics.

The lower limit of Clopper and Pearson's interval is a quantile of Beta(hits, misses + 1), the upper limit one of
Beta(hits + 1, misses): the observed rows and one more at the worst, or best, possible value. AUROC is drawn from the
same distributions (Learned-Miller and Thomas 2020 do so for any bounded mean). Macro means have one more row in all, in
the class where it matters most: one in each class would make them useless with many classes of few rows. A percentile
bootstrap knows no row worse than those observed: where nearly all rows are right, its 95 % intervals cover 60 % or
less. `tests/evaluation/test_coverage.py` simulates the coverage of every method.

Rows that come in groups count for less: every count is divided by a design effect (see `design_effect.py`), and where
a class lies in too few groups there is no interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqclf.documents.formatting import NO_VALUE
from seqclf.evaluation.design_effect import (
    MIN_KISH,
    auroc_influence,
    average_precision_influence,
    effective_groups,
    macro_f1_effect,
    mean_effect,
    mean_of_classes_effect,
    ranking_effect,
)
from seqclf.evaluation.metrics import confusion_matrix, confusion_metrics
from seqclf.evaluation.ranking import ranking_counts, ranking_from_counts
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95
DRAWS = 2000
MIN_DRAWS = 200
MAX_NUMBERS = 2_000_000  # random numbers per metric, which bounds time and memory
TINY = np.finfo(float).tiny
MAX_LEVELS = 1000  # distinct scores that AUROC is drawn with; closer ones are taken as ties

Interval = tuple[float, float] | None
SIGNED = "{:+.3f}".format  # a difference, and the limits of its interval


def interval_text(interval: Interval, form: Callable[[float], str] = "{:.3f}".format, to: str = " to ") -> str:
    """Format an interval for people. An unknown interval is a dash. `form`: formats a limit. `to`: between the limits.

    >>> interval_text((0.25, 0.5)), interval_text((-0.02, 0.1), "{:+.2f}".format), interval_text(None)
    ('0.250 to 0.500', '-0.02 to +0.10', '-')
    """
    return NO_VALUE if interval is None else f"{form(interval[0])}{to}{form(interval[1])}"


@dataclass(frozen=True, kw_only=True)
class PositiveIntervals(JsonResult):
    """Intervals of the metrics of the positive label."""

    recall: Interval
    precision: Interval
    f1: Interval
    average_precision: Interval = None
    auroc: Interval = None


@dataclass(frozen=True, kw_only=True)
class MetricIntervals(JsonResult):
    """95 % confidence intervals (low, high) of metrics.

    None where a metric is not defined, and where rows come in groups of which too few decide it.
    """

    OMIT_NONE = frozenset({"positive"})

    accuracy: Interval
    recall: Interval
    precision: Interval
    f1: Interval
    recall_by_class: dict[str, Interval]
    positive: PositiveIntervals | None = None


class ConfusionCounts(NamedTuple):
    """A confusion matrix over the C classes that occur, with its E non-empty cells off the diagonal.

    `hits`, `support`, `predicted`: (C,). `error_truth`, `error_predicted`, `errors`: (E,) row, column and count of each
    such cell.
    """

    hits: np.ndarray
    support: np.ndarray
    predicted: np.ndarray
    error_truth: np.ndarray
    error_predicted: np.ndarray
    errors: np.ndarray

    @classmethod
    def from_matrix(cls, confusion: np.ndarray) -> ConfusionCounts:
        # Classes that do not occur count in no macro mean.
        occurs = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
        matrix = confusion[np.ix_(occurs, occurs)]
        hits = np.diag(matrix)
        errors = matrix - np.diag(hits)
        truth, predicted = np.nonzero(errors)
        return cls(hits, matrix.sum(axis=1), matrix.sum(axis=0), truth, predicted, errors[truth, predicted])

    def divided_by(self, effect: float) -> ConfusionCounts:
        """Return the counts of as many rows as count where the design effect is `effect`."""
        hits, support, predicted = (counts / effect for counts in self[:3])
        return ConfusionCounts(hits, support, predicted, *self[3:5], self.errors / effect)


def metric_intervals(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    group: np.ndarray | None = None,
    seed: int = 0,
) -> MetricIntervals:
    """Intervals of accuracy, of macro recall, precision and F1, of the recall by class, and of the positive label.

    `labels`, `predicted`: (N,) class numbers. `probabilities`: (N, C). `group`: (N,) codes of the groups of the rows,
    None where each row stands alone.
    """
    generator = np.random.default_rng(seed)
    labels = labels.astype(np.int64)
    rows = _Rows(labels, predicted, labels == predicted, group)
    confusion = confusion_matrix(labels, predicted, len(classes))
    counts = ConfusionCounts.from_matrix(confusion)
    metrics = confusion_metrics(confusion, classes)
    intervals: dict[str, Interval] = {"accuracy": rows.proportion(), "recall": None, "precision": None, "f1": None}
    present = np.unique(labels)
    if all(rows.are_enough(labels == code) for code in present):
        of_recall, of_precision, of_f1 = (counts.divided_by(effect) for effect in rows.macro_effects(len(classes)))
        with_rows = counts.support > 0
        intervals |= {
            "recall": mean_interval(of_recall.hits[with_rows], of_recall.support[with_rows], metrics.recall, generator),
            "precision": mean_interval(of_precision.hits, of_precision.predicted, metrics.precision, generator),
            "f1": macro_f1_interval(of_f1, metrics.f1, generator),
        }
    by_class = {classes[code]: rows.proportion(labels == code) for code in present}
    positive_intervals = None
    if positive is not None:
        index = classes.index(positive)
        is_positive, is_alert = labels == index, predicted == index
        ranking: dict[str, Interval] = {}
        if is_positive.any() and not is_positive.all() and rows.are_enough(is_positive, ~is_positive):
            ranking = ranking_intervals(is_positive, probabilities[:, index], generator, group)
        f1 = rows.proportion(is_positive | is_alert, is_chosen=True) if rows.are_enough(is_positive) else None
        positive_intervals = PositiveIntervals(
            recall=rows.proportion(is_positive),
            precision=rows.proportion(is_alert, is_chosen=True),
            f1=None if f1 is None else (_f1_of_share(f1[0]), _f1_of_share(f1[1])),
            **ranking,
        )
    return MetricIntervals(**intervals, recall_by_class=by_class, positive=positive_intervals)


class _Rows(NamedTuple):
    """Rows of a split. `labels`, `predicted`, `hits`: (N,). `group`: (N,) codes, None where each row stands alone."""

    labels: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray
    group: np.ndarray | None

    def are_enough(self, *parts: np.ndarray) -> bool:
        """Return True if the rows of each part, (N,) bool, are spread over enough groups for an interval."""
        return self.group is None or all(effective_groups(self.group[part]) >= MIN_KISH for part in parts)

    def proportion(self, part: np.ndarray | None = None, *, is_chosen: bool = False) -> Interval:
        """Interval of the share of hits among a part of the rows, (N,) bool.

        `is_chosen`: the model chose these rows, and might have chosen others.
        """
        hits = self.hits if part is None else self.hits[part]
        if self.group is None:
            return proportion_interval(hits.sum(), len(hits))
        group = self.group if part is None else self.group[part]
        if effective_groups(group) < MIN_KISH:
            return None
        effect = mean_effect(self.hits, self.group, part) if is_chosen else mean_effect(hits, group)
        return proportion_interval(hits.sum() / effect, len(hits) / effect)

    def macro_effects(self, classes: int) -> tuple[float, float, float]:
        """Return the design effects of macro recall, precision and F1."""
        if self.group is None:
            return 1.0, 1.0, 1.0
        return (
            mean_of_classes_effect(self.hits, self.labels, self.group),
            mean_of_classes_effect(self.hits, self.predicted, self.group, np.ones(len(self.hits), bool)),
            macro_f1_effect(self.labels, self.predicted, classes, self.group),
        )


def proportion_interval(hits: float, rows: float, confidence: float = CONFIDENCE) -> Interval:
    """Interval of a proportion (Clopper and Pearson 1934), None without rows.

    The counts need not be whole numbers, which `scipy.stats.binomtest` would require.

    >>> low, high = proportion_interval(10, 10)
    >>> round(low, 3), high
    (0.692, 1.0)
    """
    from scipy.stats import beta

    if not rows:
        return None
    tail = (1 - confidence) / 2
    low = beta.ppf(tail, hits, rows - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, rows - hits) if hits < rows else 1.0
    return float(low), float(high)


def _f1_of_share(share: float) -> float:
    return 2 * share / (1 + share)


def mean_interval(hits: np.ndarray, rows: np.ndarray, point: float, generator: np.random.Generator) -> Interval:
    """Interval of the mean of the proportions `hits` / `rows` (C,) of disjoint rows. `point`: the observed mean."""
    classes = len(rows)
    weight = np.ones(classes)
    single = (rows > 0) & (rows <= 1)
    if single.sum() > 1:
        # One row shows no variance. Together these rows do, and their mean is that of their classes.
        hits, rows, weight = (np.append(counts[~single], counts[single].sum()) for counts in (hits, rows, weight))
    size = (draw_count(2 * len(rows)), len(rows))
    observed = hits / np.maximum(rows, TINY)
    limits = []
    for worst in (True, False):
        right, wrong = generator.standard_gamma(hits, size), generator.standard_gamma(rows - hits, size)
        total = right + wrong
        drawn = np.where(total > TINY, right / np.maximum(total, TINY), observed)
        mean = (_widened(drawn, observed, rows) @ weight) / classes
        one_more = generator.standard_exponential((size[0], 1))
        change = weight * (drawn if worst else 1 - drawn) * one_more / (total + one_more)
        limits.append(mean + change.max(axis=1) / classes * (-1 if worst else 1))
    # Classes without rows count as 0 in the mean, and two classes of one row may differ in their number of rows.
    shift = point - float(observed @ weight) / classes
    low, high = (np.clip(draws + shift, 0, 1) for draws in limits)
    return _limits(low, high, point)


def _widened(drawn: np.ndarray, observed: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return draws (R, C) of proportions with the variance of a mean of `rows` (C,).

    Weights drawn at random vary by (n - 1) / (n + 1) of that variance only.
    """
    return observed + np.sqrt((rows + 1) / np.maximum(rows - 1, 1)) * (drawn - observed)


def macro_f1_interval(counts: ConfusionCounts, point: float, generator: np.random.Generator) -> Interval:
    """Interval of macro F1. `point`: the observed value.

    An error lowers the F1 of two classes, so complete confusion matrices are drawn, and one more row in all: an error
    between the two classes where it costs most, or a hit of the class where it helps most.
    """
    from scipy import sparse

    classes, cells = len(counts.hits), len(counts.errors)
    draws = draw_count(classes + cells)
    # Sparse sums over cells: a thousand classes have a million cells, nearly all of them empty.
    sum_by_class = sum(
        sparse.csr_matrix((np.ones(cells), (np.arange(cells), side)), (cells, classes))
        for side in (counts.error_truth, counts.error_predicted)
    )
    both = counts.support + counts.predicted
    observed, rows = 2 * counts.hits / both, both - counts.hits
    limits = []
    for worst in (True, False):
        hits = generator.standard_gamma(counts.hits, (draws, classes))
        total = np.maximum(2 * hits + generator.standard_gamma(counts.errors, (draws, cells)) @ sum_by_class, TINY)
        one_more = generator.standard_exponential((draws, 1))
        drawn = 2 * hits / total
        if worst:
            change = -np.sort(drawn * one_more / (total + one_more), axis=1)[:, -2:].sum(axis=1)
        else:
            change = ((1 - drawn) * 2 * one_more / (total + 2 * one_more)).max(axis=1)
        mean = drawn.mean(axis=0)
        # On average, F1 of few rows is below that of many. The draws are below the observed F1 by as much.
        unbiased = observed + (rows + 1) / np.maximum(rows - 1, 1) * (observed - mean)
        widened = unbiased + _widened(drawn, mean, rows) - mean
        limits.append(np.clip((widened.sum(axis=1) + change) / classes, 0, 1))
    low, high = limits
    return _limits(low, high, point)


def ranking_intervals(
    is_positive: np.ndarray, score: np.ndarray, generator: np.random.Generator, group: np.ndarray | None = None
) -> dict[str, Interval]:
    """Intervals of AUROC and average precision of `score` (N,) for the rows of `is_positive` (N,) bool.

    `group`: (N,) codes of the groups of the rows, None where each row stands alone.

    Average precision is treated as a proportion of P N / (P + N) rows, with P positive and N negative ones. For rare
    positives that is about P.
    """
    effects = (1.0, 1.0)
    if group is not None:
        of_auroc, of_precision = (
            ranking_effect(influence(is_positive, score)[1], is_positive, group)
            for influence in (auroc_influence, average_precision_influence)
        )
        effects = of_auroc, of_precision
    level, levels = score_levels(is_positive, score)
    exact = ranking_from_counts(ranking_counts(is_positive, level, levels)[None])
    average_precision, auroc = (float(exact[name][0]) for name in ("average_precision", "auroc"))
    positives = int(is_positive.sum())
    rows = positives * (len(is_positive) - positives) / len(is_positive) / effects[1]
    # Rounding errors may put it just outside 0 to 1, where the beta distribution is not defined.
    share = min(max(average_precision, 0.0), 1.0)
    if levels > MAX_LEVELS:
        level, levels = level * MAX_LEVELS // levels, MAX_LEVELS
    counts = ranking_counts(is_positive, level, levels) / effects[0]
    # Coarser levels move AUROC a little. The draws are moved back by as much.
    shift = auroc - float(ranking_from_counts(counts[None])["auroc"][0])
    low, high = (np.clip(_draw_auroc(counts, worst, generator) + shift, 0, 1) for worst in (True, False))
    return {
        "average_precision": proportion_interval(share * rows, rows),
        "auroc": _limits(low, high, auroc),
    }


def score_levels(is_positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, int]:
    """Level (N,) of each row by descending score, and the number of levels.

    The levels are: above the highest score of a positive row, at it, between it and the next, and so on. Both ranking
    metrics depend on the counts of these levels alone.
    """
    levels = np.unique(score[is_positive])
    below = np.searchsorted(levels, score, side="left")
    at_level = levels[np.minimum(below, len(levels) - 1)] == score
    return 2 * (len(levels) - below) - at_level, 2 * len(levels) + 1


def _draw_auroc(counts: np.ndarray, worst: bool, generator: np.random.Generator) -> np.ndarray:
    """Draws (R,) of AUROC from (2, G) counts. With `worst`, one more negative ranks first and one positive last."""
    # The observed rows and one more of each class, as in the interval of Clopper and Pearson.
    padded = np.pad(counts, ((0, 0), (1, 1)))
    padded[0 if worst else 1, 0] = padded[1 if worst else 0, -1] = 1
    weights = generator.standard_gamma(padded, (draw_count(padded.size), *padded.shape))
    negatives, positives = weights.transpose(1, 0, 2)
    pairs = (negatives * (positives.cumsum(axis=1) - positives / 2)).sum(axis=1)
    return pairs / (positives.sum(axis=1) * negatives.sum(axis=1))


def draw_count(numbers: int) -> int:
    """Number of draws when each takes `numbers` random numbers."""
    return int(np.clip(MAX_NUMBERS // max(1, numbers), MIN_DRAWS, DRAWS))


def _limits(low: np.ndarray, high: np.ndarray, point: float) -> Interval:
    """Lower limit from the draws `low`, upper limit from `high`. The observed `point` is always between them."""
    tail = (1 - CONFIDENCE) / 2
    # Quantiles of finite draws may pass the observed value by chance where an interval is very narrow.
    return min(float(np.quantile(low, tail)), point), max(float(np.quantile(high, 1 - tail)), point)
