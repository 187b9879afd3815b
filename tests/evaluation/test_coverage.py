"""Coverage of the 95 % confidence intervals: how often they contain the true metric of a known population."""

import numpy as np
import pytest
from scipy.stats import norm

from seqclf.evaluation import intervals
from seqclf.evaluation.metrics import confusion_metrics


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


def confusion_coverage(supports, recalls, errors_go_to, repeats):
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


def ranking_coverage(population, auroc, rows, positive_share, repeats):
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


def assert_covered(coverage, lowest):
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
    ((5,) * 100, tuple(np.linspace(0.99, 0.6, 100))),
    ((10,) * 100, (1.0,) * 90 + (0.5,) * 10),
]


def test_macro_means_of_many_classes_are_covered_by_narrow_intervals(few_draws):
    """One more row in each class, as in the interval of a single proportion, makes these three times as wide."""
    for supports, recalls in MANY_CLASSES:
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


@pytest.mark.soak
@pytest.mark.parametrize("population", ["normal", "wide", "narrow", "mixed positives", "mixed negatives"])
@pytest.mark.parametrize(
    ("rows", "positive_share"),
    [(100, 0.05), (1000, 0.01), (40, 0.5), (1030, 0.03), (200, 0.5), (3300, 0.09), (330, 0.9)],
)
def test_ranking_metrics_are_covered(few_draws, population, rows, positive_share):
    for auroc in (0.6, 0.8, 0.95, 0.99, 0.999):
        assert_covered(ranking_coverage(population, auroc, rows, positive_share, 200), 0.9)
