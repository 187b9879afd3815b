"""Coverage of the 95 % confidence intervals: how often they contain the true metric of a known population."""

import numpy as np
import pytest
from scipy.stats import norm

from seqclf.evaluation.metrics import confusion_metrics
from seqclf.evaluation.uncertainty import intervals

REPEATS = 400
LOWEST_COVERAGE = 0.95 - 3 * np.sqrt(0.95 * 0.05 / REPEATS)  # an exact interval falls below it once in 700 times


def confusion_population(supports, recalls, errors_go_to):
    """(C, C) joint probabilities of true and predicted class.

    `errors_go_to`: "large" spreads the errors of a class by the size of the others, "even" equally, and "next" sends
    all of them to one class.
    """
    classes = len(supports)
    shares = np.array(supports) / sum(supports)
    wrong = np.tile(shares if errors_go_to == "large" else np.ones(classes), (classes, 1))
    if errors_go_to == "next":
        wrong = np.roll(np.eye(classes), 1, axis=1)
    np.fill_diagonal(wrong, 0)
    by_class = wrong / wrong.sum(axis=1, keepdims=True) * (1 - np.array(recalls))[:, None] + np.diag(recalls)
    return by_class * shares[:, None]


def confusion_coverage(supports, recalls, errors_go_to, repeats=REPEATS):
    """Coverage of macro recall, precision and F1, and of the F1 of the last class."""
    classes = len(supports)
    population = confusion_population(supports, recalls, errors_go_to)
    names = [str(code) for code in range(classes)]
    # Metrics take counts. A billion rows make rounding errors of the true values negligible.
    true = confusion_metrics(population * 1e9, names)
    true_values = {
        "recall": true.recall,
        "precision": true.precision,
        "f1": true.f1,
        "last_f1": true.f1_by_class[names[-1]],
    }
    generator = np.random.default_rng(0)
    covered = dict.fromkeys(true_values, 0)
    for _ in range(repeats):
        counts = generator.multinomial(sum(supports), population.ravel())
        labels, predicted = np.repeat(np.indices((classes, classes)).reshape(2, -1), counts, axis=1)
        no_probabilities = np.zeros((len(labels), classes))
        limits = vars(intervals.metric_intervals(labels, predicted, no_probabilities, names, None))
        confusion = counts.reshape(classes, classes)
        hits = confusion[-1, -1]
        shares = intervals.proportion_interval(hits, confusion[-1].sum() + confusion[:, -1].sum() - hits) or (0, 1)
        limits["last_f1"] = [2 * share / (1 + share) for share in shares]
        for name, value in true_values.items():
            covered[name] += limits[name][0] <= value <= limits[name][1]
    return {name: count / repeats for name, count in covered.items()}


def ranking_coverage(population, auroc, rows, positive_share, repeats=REPEATS):
    """Coverage of AUROC and average precision. `population`: see `score_quantiles`."""
    generator = np.random.default_rng(0)
    grid = (np.arange(200_000) + 0.5) / 200_000
    positive, negative = score_quantiles(population, auroc)
    # Share of negatives above each positive, from the highest positive down. Both true values follow from it.
    negatives_above = 1 - np.searchsorted(np.sort(negative(grid)), np.sort(positive(grid))[::-1]) / len(grid)
    precision = positive_share * grid / (positive_share * grid + (1 - positive_share) * negatives_above)
    true_values = {"auroc": 1 - negatives_above.mean(), "average_precision": precision.mean()}
    covered = dict.fromkeys(true_values, 0)
    for _ in range(repeats):
        is_positive = np.arange(rows) < np.clip(generator.binomial(rows, positive_share), 2, rows - 2)
        uniform = generator.random(rows)
        scores = np.where(is_positive, positive(uniform), negative(uniform))
        limits = intervals.ranking_intervals(is_positive, scores, generator)
        for name, value in true_values.items():
            covered[name] += limits[name][0] <= value <= limits[name][1]
    return {name: count / repeats for name, count in covered.items()}


def score_quantiles(population, auroc):
    """Quantile functions of the scores of positive and of negative rows, at an AUROC of `auroc`.

    "normal", "wide" and "narrow" are normal distributions, where that of the positives has a deviation of 1, 2 or 0.5.
    In "mixed positives" some positives look like negatives and the others are far above. In "mixed negatives" some
    negatives look like positives and the others are far below.
    """
    if population in ("mixed positives", "mixed negatives"):
        overlap = 2 * (1 - auroc)
        sign = 1 if population == "mixed positives" else -1

        def mixture(u):
            within_part = np.where(u < overlap, u / overlap, (u - overlap) / (1 - overlap))
            return norm.ppf(np.clip(within_part, 1e-9, 1 - 1e-9)) + sign * 9 * (u >= overlap)

        return (mixture, norm.ppf) if population == "mixed positives" else (norm.ppf, mixture)
    deviation = {"normal": 1.0, "wide": 2.0, "narrow": 0.5}[population]
    separation = np.sqrt(1 + deviation**2) * norm.ppf(auroc)
    return lambda u: deviation * norm.ppf(u) + separation, norm.ppf


def assert_covered(coverage, lowest=LOWEST_COVERAGE):
    assert min(coverage.values()) >= lowest, coverage


@pytest.fixture
def few_draws(monkeypatch):
    """A tenth of the random numbers: the limits vary a little, and the simulations take seconds."""
    monkeypatch.setattr(intervals, "DRAWS", 200)


def test_rare_classes_with_few_errors_are_covered(few_draws):
    """A percentile bootstrap covers 0.60 and 0.41 of these."""
    assert_covered(confusion_coverage((990, 10), (0.99, 0.9), "large", 100), 0.93)
    assert_covered(confusion_coverage((10,) * 5, (0.99,) * 5, "even", 100), 0.93)


# Some classes are harder than others, and some have few rows.
MANY_CLASSES = [
    ((10,) * 100, (0.8,) * 100),
    ((20,) * 100, tuple(np.linspace(0.6, 0.99, 100))),
    ((5,) * 100, tuple(np.linspace(0.99, 0.6, 100))),
    ((10,) * 100, (0.99,) * 100),
    ((10,) * 100, (1.0,) * 90 + (0.5,) * 10),
    ((5,) * 100, (1.0,) * 97 + (0.5,) * 3),
    ((8,) * 50, (0.6,) * 50),
    (tuple((200 / np.arange(1, 101) + 3).astype(int)), tuple(np.linspace(0.6, 0.99, 100)[np.arange(100) * 37 % 100])),
    (tuple((300 / np.arange(1, 51) + 5).astype(int)), (0.98,) * 40 + (0.7,) * 10),
]


def test_macro_means_of_many_classes_are_covered_by_narrow_intervals(few_draws):
    """One more row in each class, as in the interval of a single proportion, makes these three times as wide."""
    for supports, recalls in (MANY_CLASSES[2], MANY_CLASSES[4]):
        assert_covered(confusion_coverage(supports, recalls, "large", 60), 0.93)
    labels = np.repeat(np.arange(100), 10)
    predicted = np.where(np.arange(1000) % 10 < 8, labels, (labels + 1) % 100)
    names = [str(code) for code in range(100)]
    result = intervals.metric_intervals(labels, predicted, np.zeros((1000, 100)), names, None)
    for low, high in (result.recall, result.precision, result.f1):
        assert low < 0.8 < high and high - low < 0.07, "0.05 for a normal distribution"


def test_rankings_near_one_and_mixed_positives_are_covered(few_draws):
    """A percentile bootstrap covers 0.4 of the first, and Newcombe's normal approximation 0.75 of the second."""
    assert_covered(ranking_coverage("normal", 0.999, 1000, 0.01, 100), 0.93)
    assert_covered(ranking_coverage("mixed positives", 0.95, 1000, 0.03, 100), 0.93)


RECALLS_BY_SUPPORT = [
    ((990, 10), ((0.99, 0.9), (0.999, 0.9), (0.99, 0.5), (0.9, 0.9), (1.0, 0.9))),
    ((100, 10), ((0.99, 0.9), (0.95, 0.7))),
    ((1000, 30), ((0.99, 0.99), (0.97, 0.7))),
    ((50, 50), ((0.95, 0.9), (0.99, 0.99), (0.8, 0.8), (0.6, 0.5))),
    ((1000, 1000, 1000), ((0.95, 0.9, 0.99),)),
    ((500, 100, 20, 10), ((0.99, 0.95, 0.9, 0.8), (0.9, 0.8, 0.7, 0.5), (0.999, 0.999, 0.99, 0.99))),
    ((10,) * 5, ((0.9,) * 5, (0.99,) * 5)),
    ((30,) * 9, ((0.99,) * 9, (0.95,) * 9, (0.8,) * 9, (0.5,) * 9)),
]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("supports", "recalls"),
    [(supports, recalls) for supports, all_recalls in RECALLS_BY_SUPPORT for recalls in all_recalls],
)
def test_metrics_of_confusion_matrices_are_covered(few_draws, supports, recalls):
    # With two classes there is only one other class for errors to go to.
    for errors_go_to in ("large",) if len(supports) == 2 else ("large", "even", "next"):
        assert_covered(confusion_coverage(supports, recalls, errors_go_to))


@pytest.mark.soak
@pytest.mark.parametrize("errors_go_to", ["large", "next"])
@pytest.mark.parametrize(("supports", "recalls"), MANY_CLASSES, ids=range(len(MANY_CLASSES)))
def test_metrics_of_many_classes_are_covered(few_draws, supports, recalls, errors_go_to):
    coverage = confusion_coverage(supports, recalls, errors_go_to, 300)
    del coverage["last_f1"]  # of one small class
    # 0.94 with these few draws, 0.95 with all, less twice the deviation of 300 repeats.
    assert_covered(coverage, 0.91)


@pytest.mark.soak
@pytest.mark.parametrize("population", ["normal", "wide", "narrow", "mixed positives", "mixed negatives"])
@pytest.mark.parametrize(
    ("rows", "positive_share"),
    [(100, 0.05), (1000, 0.01), (40, 0.5), (1030, 0.03), (200, 0.5), (3300, 0.09), (330, 0.9)],
)
def test_ranking_metrics_are_covered(few_draws, population, rows, positive_share):
    for auroc in (0.6, 0.8, 0.95, 0.99, 0.999):
        assert_covered(ranking_coverage(population, auroc, rows, positive_share, 200), 0.9)
