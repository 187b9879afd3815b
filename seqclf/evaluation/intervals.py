"""95 % confidence intervals: the Clopper-Pearson interval for proportions, and its extension to other metrics.

Its limits are quantiles of Beta(hits, misses + 1) and Beta(hits + 1, misses), which describe the observed rows plus one
extra row with the worst (or best) value. For AUROC, random values are drawn from such distributions (Learned-Miller and
Thomas 2020 do so for any bounded mean). For a macro mean, one extra row is added in total, to the class where it
changes the mean most, because one in each of many small classes would make it too wide to be useful. A percentile
bootstrap adds no worst row, and covers 60 % or less if nearly all rows are right. `tests/evaluation/test_coverage.py`
simulates the coverage of every method.

For grouped rows, every count is divided by a design effect (see `design_effect.py`). If the rows of a class come from
too few groups, there is no interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqclf.documents.formatting import NO_VALUE
from seqclf.evaluation.design_effect import (
    MIN_KISH,
    auroc_influence,
    average_precision_influence,
    effective_groups,
    kish_weights,
    macro_f1_effect,
    mean_effect,
    mean_of_classes_effect,
    ranking_effect,
)
from seqclf.evaluation.metrics import confusion_matrix, confusion_metrics
from seqclf.evaluation.ranking import ranking_counts, ranking_from_counts, ranking_scores
from seqclf.system.json_result import JsonResult

CONFIDENCE = 0.95
DRAWS = 2000
MIN_DRAWS = 200
MAX_NUMBERS = 2_000_000  # maximum count of random numbers per metric, which bounds time and memory
TINY = np.finfo(float).tiny
# Maximum number of levels in draws of AUROC; if there are more levels, neighbouring levels are merged.
MAX_LEVELS = 1000

Interval = tuple[float, float] | None
SIGNED = "{:+.3f}".format  # format of a difference and of the limits of its interval


def interval_text(interval: Interval, form: Callable[[float], str] = "{:.3f}".format, to: str = " to ") -> str:
    """Return an interval as text, its limits formatted by `form` with `to` between, or a dash if it is None.

    >>> interval_text((0.25, 0.5)), interval_text((-0.02, 0.1), "{:+.2f}".format), interval_text(None)
    ('0.250 to 0.500', '-0.02 to +0.10', '-')
    """
    return NO_VALUE if interval is None else f"{form(interval[0])}{to}{form(interval[1])}"


@dataclass(frozen=True, kw_only=True)
class LabelIntervals(JsonResult):
    """Intervals of the metrics of the positive label. `alerts`: interval of the fraction of rows that are alerts."""

    recall: Interval
    precision: Interval
    alerts: Interval
    f1: Interval
    average_precision: Interval = None
    auroc: Interval = None


@dataclass(frozen=True, kw_only=True)
class Intervals(JsonResult):
    """95 % confidence intervals (low, high), None if a metric is not defined or the rows come from too few groups."""

    OMIT_NONE = frozenset({"positive"})

    accuracy: Interval
    recall: Interval
    precision: Interval
    f1: Interval
    recall_by_class: dict[str, Interval]
    positive: LabelIntervals | None = None


class ConfusionCounts(NamedTuple):
    """Sparse form of a confusion matrix, with C classes that occur and E non-empty cells of errors.

    `hits`, `support`, `predicted`: (C,) correct rows, rows and predicted rows. `error_truth`, `error_predicted`,
    `errors`: (E,) true class, predicted class and number of rows of each error cell.
    """

    hits: np.ndarray
    support: np.ndarray
    predicted: np.ndarray
    error_truth: np.ndarray
    error_predicted: np.ndarray
    errors: np.ndarray

    @classmethod
    def from_matrix(cls, confusion: np.ndarray) -> ConfusionCounts:
        # Macro means exclude classes that do not occur.
        occurs = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
        matrix = confusion[np.ix_(occurs, occurs)]
        hits = np.diag(matrix)
        errors = matrix - np.diag(hits)
        truth, predicted = np.nonzero(errors)
        return cls(hits, matrix.sum(axis=1), matrix.sum(axis=0), truth, predicted, errors[truth, predicted])

    def divided_by(self, effect: float) -> ConfusionCounts:
        """Return all counts divided by the design effect `effect`."""
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
    weights: np.ndarray | None = None,
) -> Intervals:
    """Return the confidence intervals of accuracy, macro means, the recall of each class and of the positive label.

    `labels`, `predicted`: (N,) class numbers. `probabilities`: (N, C). `group`: (N,) codes, None if rows are
    independent. `weights`: (N,) of the rows, None for equal ones; rows then count as Kish's effective number.
    """
    generator = np.random.default_rng(seed)
    labels = labels.astype(np.int64)
    rows = _Rows(labels, predicted, labels == predicted, group, weights)
    metrics = confusion_metrics(confusion_matrix(labels, predicted, len(classes), weights), classes)
    intervals: dict[str, Interval] = {"accuracy": rows.proportion(), "recall": None, "precision": None, "f1": None}
    present = np.unique(labels)
    if all(rows.are_enough(labels == code) for code in present):
        of_recall, of_precision, of_f1 = (
            counts.divided_by(effect)
            for counts, effect in zip(rows.macro_counts(len(classes)), rows.macro_effects(len(classes)), strict=True)
        )
        with_rows = of_recall.support > 0
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
        ranking = dict[str, Any]()
        if is_positive.any() and not is_positive.all() and rows.are_enough(is_positive, ~is_positive):
            ranked = ranking_scores(probabilities)[:, index]
            ranking = ranking_intervals(is_positive, ranked, generator, group, weights)
        f1 = rows.proportion(is_positive | is_alert, is_chosen=True) if rows.are_enough(is_positive) else None
        positive_intervals = LabelIntervals(
            recall=rows.proportion(is_positive),
            precision=rows.proportion(is_alert, is_chosen=True),
            alerts=rows._replace(hits=is_alert).proportion(),
            f1=None if f1 is None else (_f1_of_share(f1[0]), _f1_of_share(f1[1])),
            **ranking,
        )
    return Intervals(**intervals, recall_by_class=by_class, positive=positive_intervals)


class _Rows(NamedTuple):
    """Labels and predictions: (N,) class numbers, hits, group codes and weights, None for independent, equal rows."""

    labels: np.ndarray
    predicted: np.ndarray
    hits: np.ndarray
    group: np.ndarray | None
    weights: np.ndarray | None = None

    def are_enough(self, *parts: np.ndarray) -> bool:
        """True if the rows of every mask (N,) in `parts` come from enough groups for an interval."""
        if self.group is None:
            return True
        return all(effective_groups(self.group[part], self._weights(part)) >= MIN_KISH for part in parts)

    def _weights(self, part: np.ndarray | None) -> np.ndarray | None:
        return self.weights if self.weights is None or part is None else self.weights[part]

    def proportion(self, part: np.ndarray | None = None, *, is_chosen: bool = False) -> Interval:
        """Return the interval of the hits in `part` (N,). `is_chosen`: True if predictions decide it, as of alerts."""
        hits, weights = self.hits if part is None else self.hits[part], self._weights(part)
        count, found, effect = float(len(hits)), float(hits.sum()), 1.0
        if self.group is not None:
            group = self.group if part is None else self.group[part]
            if effective_groups(group, weights) < MIN_KISH:
                return None
            effect = (
                mean_effect(self.hits, self.group, part, weights=self.weights)
                if is_chosen
                else mean_effect(hits, group, weights=weights)
            )
        if weights is not None:
            count, found = effective_proportion(hits, weights)
        return proportion_interval(found / effect, count / effect)

    def macro_counts(self, classes: int) -> list[ConfusionCounts]:
        """Return the counts for macro recall, precision and F1: rows, or their effective number in each class."""
        codes = (self.labels, self.predicted, np.zeros(len(self.labels), np.int64))
        weights = (kish_weights(self.weights, code) for code in codes)
        matrices = (confusion_matrix(self.labels, self.predicted, classes, weight) for weight in weights)
        return [ConfusionCounts.from_matrix(matrix) for matrix in matrices]

    def macro_effects(self, classes: int) -> tuple[float, float, float]:
        """Return the design effects of macro recall, precision and F1."""
        if self.group is None:
            return 1.0, 1.0, 1.0
        return (
            mean_of_classes_effect(self.hits, self.labels, self.group, weights=self.weights),
            mean_of_classes_effect(
                self.hits, self.predicted, self.group, np.ones(len(self.hits), bool), weights=self.weights
            ),
            macro_f1_effect(self.labels, self.predicted, classes, self.group, self.weights),
        )


def effective_proportion(hits: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the effective number of rows of a weighted proportion, and the hits among them: (n, n p).

    It is Kish's, (sum w)² / sum w², or the lower number that the variance of the weighted hits (N,) shows, where heavy
    rows are hit more or less often than light ones.
    """
    total, squares = float(weights.sum()), float(weights @ weights)
    if not total:
        return 0.0, 0.0
    share, count = min(1.0, float(weights[hits].sum()) / total), total**2 / squares
    spread = float(weights**2 @ (hits - share) ** 2) / total**2
    if spread > 0:
        count = min(count, share * (1 - share) / spread)
    return count, share * count


def proportion_interval(hits: float, rows: float, confidence: float = CONFIDENCE) -> Interval:
    """Return the Clopper-Pearson interval (1934) of `hits` / `rows`, or None without rows.

    The counts need not be integers, unlike those of `scipy.stats.binomtest`.

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
    """Return the interval of the mean of C proportions `hits` / `rows` of disjoint sets. `point`: the observed mean."""
    classes = len(rows)
    weight = np.ones(classes)
    single = (rows > 0) & (rows <= 1)
    if single.sum() > 1:
        # A class with a single row has no observed variance. Such classes are therefore pooled into one class, which
        # does not change their mean.
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
    # `shift` moves the mean of the draws to the observed mean. The means differ because classes without rows count as 0
    # in the observed mean, and because pooled classes may have different numbers of rows.
    shift = point - float(observed @ weight) / classes
    low, high = (np.clip(draws + shift, 0, 1) for draws in limits)
    return _limits(low, high, point)


def _widened(drawn: np.ndarray, observed: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return random draws (R, C) of proportions, widened to the variance of a mean of `rows` (C,) rows.

    Without the widening, the mean of n randomly weighted rows has only (n - 1) / (n + 1) times this variance.
    """
    return observed + np.sqrt((rows + 1) / np.maximum(rows - 1, 1)) * (drawn - observed)


def macro_f1_interval(counts: ConfusionCounts, point: float, generator: np.random.Generator) -> Interval:
    """Return the interval of macro F1. `point`: the observed macro F1.

    An error lowers the F1 of two classes, so each random draw is a whole confusion matrix. The lower limit has one
    extra error in the pair of classes where it lowers macro F1 most, the upper limit one extra hit where it raises it
    most.
    """
    from scipy import sparse

    classes, cells = len(counts.hits), len(counts.errors)
    draws = draw_count(classes + cells)
    # A sparse matrix sums over cells, because a thousand classes have a million cells, and nearly all cells are empty.
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
        # The F1 of few rows is biased downwards. The F1 of the draws is below the observed F1 by the same bias, so the
        # bias can be estimated and removed.
        unbiased = observed + (rows + 1) / np.maximum(rows - 1, 1) * (observed - mean)
        widened = unbiased + _widened(drawn, mean, rows) - mean
        limits.append(np.clip((widened.sum(axis=1) + change) / classes, 0, 1))
    low, high = limits
    return _limits(low, high, point)


def ranking_intervals(
    is_positive: np.ndarray,
    score: np.ndarray,
    generator: np.random.Generator,
    group: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> dict[str, Interval]:
    """Return the intervals of AUROC and average precision of `score` (N,).

    `is_positive`: (N,) bool, True for rows that should rank first. `group`: (N,) codes, None if rows are independent.
    The interval of average precision is that of a proportion of P N / (P + N) rows, for P positive and N negative rows:
    about P if they are rare.
    """
    effects = (1.0, 1.0)
    if group is not None:
        of_auroc, of_precision = (
            ranking_effect(influence(is_positive, score, weights)[1], is_positive, group, weights=weights)
            for influence in (auroc_influence, average_precision_influence)
        )
        effects = of_auroc, of_precision
    level, levels = score_levels(is_positive, score)
    exact = ranking_from_counts(ranking_counts(is_positive, level, levels, weights)[None])
    average_precision, auroc = (float(exact[name][0]) for name in ("average_precision", "auroc"))
    given = kish_weights(weights, is_positive.astype(np.int64))
    negatives, positives = np.bincount(is_positive, given, 2).tolist()
    rows = positives * negatives / (positives + negatives) / effects[1]
    # Rounding errors may put average precision slightly below 0 or above 1, where the beta distribution is not defined.
    share = min(max(average_precision, 0.0), 1.0)
    if levels > MAX_LEVELS:
        level, levels = level * MAX_LEVELS // levels, MAX_LEVELS
    counts = ranking_counts(is_positive, level, levels, given) / effects[0]
    # Merging levels changes AUROC slightly. `shift` corrects the draws for this change.
    shift = auroc - float(ranking_from_counts(counts[None])["auroc"][0])
    low, high = (np.clip(_draw_auroc(counts, worst, generator) + shift, 0, 1) for worst in (True, False))
    return {
        "average_precision": proportion_interval(share * rows, rows),
        "auroc": _limits(low, high, auroc),
    }


def score_levels(is_positive: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the level (N,) of each row, numbered from the highest score down, and the number of levels.

    Every second level is a score of positive rows, the others are the gaps around them, the first one above all. AUROC
    and average precision depend only on the numbers of positive and negative rows in each level.
    """
    levels = np.unique(score[is_positive])
    below = np.searchsorted(levels, score, side="left")
    at_level = levels[np.minimum(below, len(levels) - 1)] == score
    return 2 * (len(levels) - below) - at_level, 2 * len(levels) + 1


def _draw_auroc(counts: np.ndarray, worst: bool, generator: np.random.Generator) -> np.ndarray:
    """Return random draws (R,) of AUROC from the counts (2, G) of rows by level, with one extra row of each class.

    `worst`: True to rank the extra negative row first and the extra positive row last, False for the opposite.
    """
    # As in a Clopper-Pearson interval, one extra row of each class is added to the observed rows.
    padded = np.pad(counts, ((0, 0), (1, 1)))
    padded[0 if worst else 1, 0] = padded[1 if worst else 0, -1] = 1
    weights = generator.standard_gamma(padded, (draw_count(padded.size), *padded.shape))
    negatives, positives = weights.transpose(1, 0, 2)
    pairs = (negatives * (positives.cumsum(axis=1) - positives / 2)).sum(axis=1)
    return pairs / (positives.sum(axis=1) * negatives.sum(axis=1))


def draw_count(numbers: int) -> int:
    """Return the number of random draws, given the count `numbers` of random numbers that each draw takes."""
    return int(np.clip(MAX_NUMBERS // max(1, numbers), MIN_DRAWS, DRAWS))


def _limits(low: np.ndarray, high: np.ndarray, point: float) -> Interval:
    """Return limits from the draws `low` and `high`, moved so that `point` is not outside of them."""
    tail = (1 - CONFIDENCE) / 2
    # In a very narrow interval, random draws may put a limit on the wrong side of the observed value.
    return min(float(np.quantile(low, tail)), point), max(float(np.quantile(high, 1 - tail)), point)
