"""Coverage of the 95 % intervals: samples of known populations, and how often the interval holds the true score."""

import numpy as np
import pytest
from scipy.stats import norm

from seqclf.evaluation import intervals
from seqclf.evaluation.metrics import confusion_metrics

REPEATS = 400
LEAST = 0.95 - 3 * np.sqrt(0.95 * 0.05 / REPEATS)  # below it by chance once in 700


def confusion_coverage(supports, recalls, towards, repeats=REPEATS):
    """Of macro recall, precision and F1 and the F1 of the last class. `towards`: which classes get the errors."""
    classes = len(supports)
    shares = np.array(supports) / sum(supports)
    wrong = np.tile(shares if towards == "large" else np.ones(classes), (classes, 1))
    if towards == "next":
        wrong = np.roll(np.eye(classes), 1, axis=1)
    np.fill_diagonal(wrong, 0)
    population = wrong / wrong.sum(axis=1, keepdims=True) * (1 - np.array(recalls))[:, None] + np.diag(recalls)
    population *= shares[:, None]
    names = [str(code) for code in range(classes)]
    true = confusion_metrics(population * 1e9, names)
    values = {"recall": true.recall, "precision": true.precision, "f1": true.f1, "last": true.f1_by_class[names[-1]]}
    generator = np.random.default_rng(0)
    covered = dict.fromkeys(values, 0)
    for _ in range(repeats):
        drawn = generator.multinomial(sum(supports), population.ravel())
        labels, predicted = np.repeat(np.indices((classes, classes)).reshape(2, -1), drawn, axis=1)
        kept = vars(intervals.metric_intervals(labels, predicted, np.zeros((len(labels), classes)), names, None))
        confusion = drawn.reshape(classes, classes)
        hits = confusion[-1, -1]
        kept["last"] = intervals.f1_interval(hits, confusion[-1].sum() + confusion[:, -1].sum() - hits) or [0, 1]
        for name, value in values.items():
            covered[name] += kept[name][0] <= value <= kept[name][1]
    return {name: count / repeats for name, count in covered.items()}


def ranking_coverage(kind, auroc, rows, share, repeats=REPEATS):
    """Of AUROC and average precision. `kind`: of the scores of the positive rows (see below)."""
    generator = np.random.default_rng(0)
    grid = (np.arange(200_000) + 0.5) / 200_000
    positive, negative = populations(kind, auroc)
    above = 1 - np.searchsorted(np.sort(negative(grid)), np.sort(positive(grid))[::-1]) / len(grid)
    values = {
        "auroc": 1 - above.mean(),
        "average_precision": (share * grid / (share * grid + (1 - share) * above)).mean(),
    }
    covered = dict.fromkeys(values, 0)
    for _ in range(repeats):
        truth = np.arange(rows) < np.clip(generator.binomial(rows, share), 2, rows - 2)
        uniform = generator.random(rows)
        kept = intervals.ranking_intervals(truth, np.where(truth, positive(uniform), negative(uniform)), generator)
        for name, value in values.items():
            covered[name] += kept[name][0] <= value <= kept[name][1]
    return {name: count / repeats for name, count in covered.items()}


def populations(kind, auroc):
    """Quantile functions of the scores of positive and negative rows.

    normal, wide, narrow: normals, those of the positives of deviation 1, 2 or 0.5; two kinds: some positives look like
    negatives, the others are far above; two others: some negatives look like positives.
    """
    if kind in ("two kinds", "two others"):
        alike = 2 * (1 - auroc)
        sign = 1 if kind == "two kinds" else -1

        def mixed(u):
            inner = norm.ppf(np.clip(np.where(u < alike, u / alike, (u - alike) / (1 - alike)), 1e-9, 1 - 1e-9))
            return inner + sign * 9 * (u >= alike)

        return (mixed, norm.ppf) if kind == "two kinds" else (norm.ppf, mixed)
    deviation = {"normal": 1.0, "wide": 2.0, "narrow": 0.5}[kind]
    apart = np.sqrt(1 + deviation**2) * norm.ppf(auroc)
    return lambda u: deviation * norm.ppf(u) + apart, norm.ppf


def check(covered, least=LEAST):
    assert min(covered.values()) >= least, covered


@pytest.fixture
def few_draws(monkeypatch):
    """A tenth of the random numbers: the limits jitter a little, and the simulations take seconds."""
    monkeypatch.setattr(intervals, "DRAWS", 200)


def test_rare_classes_and_few_errors_are_covered(few_draws):
    """A percentile bootstrap covers 0.60 and 0.41 of these."""
    check(confusion_coverage((990, 10), (0.99, 0.9), "large", 100), 0.93)
    check(confusion_coverage((10,) * 5, (0.99,) * 5, "even", 100), 0.93)


def test_rankings_near_one_and_mixed_positives_are_covered(few_draws):
    """A percentile bootstrap covers 0.4 of the first; the normal theory of Newcombe 0.75 of the second."""
    check(ranking_coverage("normal", 0.999, 1000, 0.01, 100), 0.93)
    check(ranking_coverage("two kinds", 0.95, 1000, 0.03, 100), 0.93)


SUPPORTS = [
    ((990, 10), ((0.99, 0.9), (0.999, 0.9), (0.99, 0.5), (0.9, 0.9), (1.0, 0.9))),
    ((100, 10), ((0.99, 0.9), (0.95, 0.7))),
    ((1000, 30), ((0.99, 0.99), (0.97, 0.7))),
    ((50, 50), ((0.95, 0.9), (0.99, 0.99), (0.8, 0.8), (0.6, 0.5))),
    ((1000, 1000, 1000), ((0.95, 0.9, 0.99),)),
    ((500, 100, 20, 10), ((0.99, 0.95, 0.9, 0.8), (0.9, 0.8, 0.7, 0.5), (0.999, 0.999, 0.99, 0.99))),
    ((10,) * 5, ((0.9,) * 5, (0.99,) * 5)),
    ((30,) * 9, ((0.99,) * 9, (0.95,) * 9, (0.8,) * 9, (0.5,) * 9)),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("supports", "recalls"), [(supports, recalls) for supports, many in SUPPORTS for recalls in many]
)
def test_scores_of_decisions_are_covered(few_draws, supports, recalls):
    for towards in ("large",) if len(supports) == 2 else ("large", "even", "next"):
        check(confusion_coverage(supports, recalls, towards))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "wide", "narrow", "two kinds", "two others"])
@pytest.mark.parametrize(
    ("rows", "share"), [(100, 0.05), (1000, 0.01), (40, 0.5), (1030, 0.03), (200, 0.5), (3300, 0.09), (330, 0.9)]
)
def test_rankings_are_covered(few_draws, kind, rows, share):
    for auroc in (0.6, 0.8, 0.95, 0.99, 0.999):
        check(ranking_coverage(kind, auroc, rows, share, 200), 0.9)
