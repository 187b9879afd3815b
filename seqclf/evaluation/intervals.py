"""95 % confidence intervals of scores, each by a method whose coverage `tests/evaluation/test_coverage.py` simulates.

All of them extend Clopper and Pearson's interval of a proportion. Its lower limit is a quantile of
Beta(hits, misses + 1), its upper limit one of Beta(hits + 1, misses): the observed rows and one more at the worst, or
best, possible value. Means of proportions and AUROC are drawn from the same distributions (Learned-Miller and Thomas
2020 do so for any bounded mean). A percentile bootstrap knows no row worse than those observed: where nearly all rows
are right, its 95 % intervals cover 60 % or less.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from seqclf.evaluation.metrics import confusion_matrix, confusion_metrics, ranking_counts, ranking_from_counts

CONFIDENCE = 0.95
DRAWS = 2000
FEWEST_DRAWS = 200
MOST_NUMBERS = 2_000_000  # random numbers drawn at once, which bounds time and memory
MOST_GROUPS = 1000  # of scores that are taken as ties, for AUROC


class Counts(NamedTuple):
    """A confusion matrix over the classes that occur. `hits`, `support`, `predicted`: (C,); `truth`, `decided`,
    `errors`: (E,) the row, column and count of each cell off the diagonal that is not empty."""

    hits: np.ndarray
    support: np.ndarray
    predicted: np.ndarray
    truth: np.ndarray
    decided: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(cls, confusion: np.ndarray) -> Counts:
        seen = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
        kept = confusion[np.ix_(seen, seen)]
        hits = np.diag(kept)
        wrong = kept - np.diag(hits)
        truth, decided = np.nonzero(wrong)
        return cls(hits, kept.sum(axis=1), kept.sum(axis=0), truth, decided, wrong[truth, decided])


def score_intervals(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    classes: list[str],
    positive: str | None,
    seed: int = 0,
) -> dict[str, Any]:
    """Intervals [low, high] of accuracy, macro recall, precision and F1, recall by class and, for `positive`, of its
    recall, precision, F1, AUROC and average precision. None where a score is not defined."""
    generator = np.random.default_rng(seed)
    confusion = confusion_matrix(labels.astype(np.int64), predicted, len(classes))
    counts = Counts.of(confusion)
    point = confusion_metrics(confusion, classes)
    hits, support, alerts = np.diag(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    result: dict[str, Any] = {
        "accuracy": share_interval(hits.sum(), len(labels)),
        "recall": mean_interval(counts.hits, counts.support, point["recall"], generator),
        "precision": mean_interval(counts.hits, counts.predicted, point["precision"], generator),
        "f1": macro_f1_interval(counts, point["f1"], generator),
        "recall_by_class": {
            label: share_interval(hits[code], support[code]) for code, label in enumerate(classes) if support[code]
        },
    }
    if positive is not None:
        index = classes.index(positive)
        truth = labels == index
        block = {
            "recall": share_interval(hits[index], support[index]),
            "precision": share_interval(hits[index], alerts[index]),
            "f1": f1_interval(hits[index], support[index] + alerts[index] - hits[index]),
        }
        if truth.any() and not truth.all():
            block |= rank_intervals(truth, probabilities[:, index], generator)
        result["positive"] = block
    return result


def share_interval(hits: float, rows: float) -> list[float] | None:
    """Interval of a proportion (Clopper and Pearson 1934). The counts need not be whole numbers."""
    from scipy.stats import beta

    if not rows:
        return None
    tail = (1 - CONFIDENCE) / 2
    low = beta.ppf(tail, hits, rows - hits + 1) if hits else 0.0
    high = beta.ppf(1 - tail, hits + 1, rows - hits) if hits < rows else 1.0
    return [float(low), float(high)]


def f1_interval(hits: int, involved: int) -> list[float] | None:
    """Interval of F1 of one class: 2q / (1 + q), where q is the share of hits among the `involved` rows, those that
    are of the class or predicted as it. That share is a proportion."""
    share = share_interval(hits, involved)
    return None if share is None else [2 * q / (1 + q) for q in share]


def mean_interval(hits: np.ndarray, rows: np.ndarray, point: float, generator: np.random.Generator) -> list[float]:
    """Interval of the mean of the proportions `hits` / `rows` (C,), which are of different rows."""
    low, high = (_proportions(hits, rows, worst, _draws(len(hits)), generator).mean(axis=1) for worst in (True, False))
    return _limits(low, high, point)


def macro_f1_interval(counts: Counts, point: float, generator: np.random.Generator) -> list[float]:
    """Interval of macro F1. An error lowers the F1 of two classes, so whole confusion matrices are drawn: the share of
    each class, its recall, and how its errors spread over the others."""
    low, high = (_macro_f1(counts, worst, generator) for worst in (True, False))
    return _limits(low, high, point)


def _macro_f1(counts: Counts, worst: bool, generator: np.random.Generator) -> np.ndarray:
    """Draws (R,) of macro F1. `worst`: each class has one more error, which goes to any other class alike."""
    from scipy import sparse

    classes, cells = len(counts.hits), len(counts.errors)
    draws = _draws(max(classes, cells))
    recall = _proportions(counts.hits, counts.support, worst, draws, generator)
    share = generator.standard_gamma(counts.support + 0.5, (draws, classes))
    share /= share.sum(axis=1, keepdims=True)
    of_truth = sparse.csr_matrix((np.ones(cells), (np.arange(cells), counts.truth)), (cells, classes))
    to_decided = sparse.csr_matrix((np.ones(cells), (np.arange(cells), counts.decided)), (cells, classes))
    errors = generator.standard_gamma(counts.errors, (draws, cells))
    spread = generator.standard_exponential((draws, classes)) if worst else np.zeros((draws, classes))
    missed = share * (1 - recall) / np.maximum(errors @ of_truth + spread, np.finfo(float).tiny)
    spread *= missed
    others = (spread.sum(axis=1, keepdims=True) - spread) / max(1, classes - 1)
    predicted = share * recall + (errors * missed[:, counts.truth]) @ to_decided + others
    return (2 * share * recall / np.maximum(share + predicted, np.finfo(float).tiny)).mean(axis=1)


def rank_intervals(
    truth: np.ndarray, score: np.ndarray, generator: np.random.Generator
) -> dict[str, list[float] | None]:
    """Intervals of AUROC and average precision of a score (N,) that ranks the rows of `truth` (N,) bool.

    Average precision is treated as a proportion of P N / (P + N) rows, of P positive and N negative ones: for rare
    positives, of the positives.
    """
    group, count = _groups(truth, score)
    exact = {
        name: float(value[0]) for name, value in ranking_from_counts(ranking_counts(truth, group, count)[None]).items()
    }
    positives = int(truth.sum())
    rows = positives * (len(truth) - positives) / len(truth)
    average = min(max(exact["average_precision"], 0.0), 1.0)
    if count > MOST_GROUPS:
        group, count = group * MOST_GROUPS // count, MOST_GROUPS
    cells = ranking_counts(truth, group, count)
    moved = exact["auroc"] - float(ranking_from_counts(cells[None])["auroc"][0])
    low, high = (np.clip(_aurocs(cells, worst, generator) + moved, 0, 1) for worst in (True, False))
    return {
        "average_precision": share_interval(average * rows, rows),
        "auroc": _limits(low, high, exact["auroc"]),
    }


def _groups(truth: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, int]:
    """The group of each row, by descending score, and their number: above the highest score of `truth`, at it, between
    it and the next, … Both ranking scores depend on the counts of the groups alone."""
    levels = np.unique(score[truth])
    below = np.searchsorted(levels, score, side="left")
    at = levels[np.minimum(below, len(levels) - 1)] == score
    return 2 * (len(levels) - below) - at, 2 * len(levels) + 1


def _aurocs(cells: np.ndarray, worst: bool, generator: np.random.Generator) -> np.ndarray:
    """Draws (R,) of AUROC from (2, G) counts. `worst`: one more negative above all rows and one more positive below."""
    more = np.pad(cells, ((0, 0), (1, 1)))
    more[0 if worst else 1, 0] = more[1 if worst else 0, -1] = 1
    wrong, right = generator.standard_gamma(more, (_draws(more.size), *more.shape)).transpose(1, 0, 2)
    above = (wrong * (right.cumsum(axis=1) - right / 2)).sum(axis=1)
    return above / (right.sum(axis=1) * wrong.sum(axis=1))


def _proportions(
    hits: np.ndarray, rows: np.ndarray, worst: bool, draws: int, generator: np.random.Generator
) -> np.ndarray:
    """Draws (R, C) from Beta(hits, misses + 1), or from Beta(hits + 1, misses) where they are not to be the `worst`."""
    size = (draws, len(hits))
    right = generator.standard_gamma(hits + (not worst), size)
    wrong = generator.standard_gamma(rows - hits + worst, size)
    return right / (right + wrong)


def _draws(numbers: int) -> int:
    """The number of draws where each takes so many random numbers."""
    return int(np.clip(MOST_NUMBERS // max(1, numbers), FEWEST_DRAWS, DRAWS))


def _limits(low: np.ndarray, high: np.ndarray, point: float) -> list[float]:
    """The lower limit from the draws `low`, the upper one from `high`; the observed score is between them."""
    tail = (1 - CONFIDENCE) / 2
    return [min(float(np.quantile(low, tail)), point), max(float(np.quantile(high, 1 - tail)), point)]
