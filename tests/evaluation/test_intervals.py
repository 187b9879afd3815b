"""Confidence intervals against the exact ones of SciPy, and their limits. `test_coverage.py` simulates coverage."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics

from seqclf.evaluation.intervals import metric_intervals

CLASSES = ["no", "yes"]


def clopper_pearson(hits, rows):
    interval = binomtest(hits, rows).proportion_ci(0.95, "exact")
    return interval.low, interval.high


def sample_predictions(rows=300, decimals=None, seed=0):
    """Labels, predicted classes and probabilities. `decimals` rounds the probabilities, which makes ties."""
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.3).astype(int)
    score = np.clip(0.3 * labels + generator.normal(0.4, 0.2, rows), 0, 1)
    if decimals is not None:
        score = score.round(decimals)
    return labels, (score > 0.5).astype(int), np.stack([1 - score, score], axis=1)


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("rows", [50, 6000])
def test_each_interval_contains_the_metric_of_sklearn(decimals, rows):
    labels, predicted, probabilities = sample_predictions(rows, decimals)
    result = metric_intervals(labels, predicted, probabilities, CLASSES, "yes")
    positive_metrics = {
        "average_precision": metrics.average_precision_score(labels, probabilities[:, 1]),
        "auroc": metrics.roc_auc_score(labels, probabilities[:, 1]),
        "recall": metrics.recall_score(labels, predicted),
        "precision": metrics.precision_score(labels, predicted),
        "f1": metrics.f1_score(labels, predicted),
    }
    macro_metrics = {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "recall": metrics.recall_score(labels, predicted, average="macro"),
        "precision": metrics.precision_score(labels, predicted, average="macro"),
        "f1": metrics.f1_score(labels, predicted, average="macro"),
    }
    for intervals, values in ((result.positive, positive_metrics), (result, macro_metrics)):
        for name, value in values.items():
            low, high = getattr(intervals, name)
            assert low < value < high, name
            assert high - low < 5 / rows**0.5, name


def test_without_errors_the_upper_limit_is_one_and_the_lower_limit_is_below():
    for rows in (5000, 200_000):
        labels = np.zeros(rows, int)
        labels[:3] = 1
        score = np.where(labels, 1.0, np.random.default_rng(0).random(rows))
        result = metric_intervals(labels, labels, np.stack([1 - score, score], axis=1), CLASSES, "yes")
        low, high = clopper_pearson(3, 3)
        for name in ("recall", "precision", "average_precision"):
            assert getattr(result.positive, name) == pytest.approx((low, high), rel=1e-3), name
        assert result.positive.f1 == pytest.approx((2 * low / (1 + low), 1.0))
        assert result.positive.auroc == pytest.approx((low, 1.0), abs=0.05)
        for name in ("recall", "precision", "f1"):
            assert 0.5 < getattr(result, name)[0] < 0.8 and getattr(result, name)[1] == 1, name


@pytest.mark.parametrize("hits", [0, 1, 10, 19, 20])
def test_proportions_have_the_interval_of_clopper_and_pearson(hits):
    labels, predicted = np.array([1] * 20 + [0] * 80), np.zeros(100, int)
    predicted[:hits] = 1
    result = metric_intervals(labels, predicted, np.tile([0.9, 0.1], (100, 1)), CLASSES, "yes")
    assert result.positive.recall == pytest.approx(clopper_pearson(hits, 20))
    # Without an alert there is no precision.
    assert result.positive.precision == (pytest.approx(clopper_pearson(hits, hits)) if hits else None)
    assert result.recall_by_class["yes"] == result.positive.recall
    assert result.accuracy == pytest.approx(clopper_pearson(80 + hits, 100))


def test_a_split_with_one_class_has_intervals_but_none_for_the_absent_positive_label():
    result = metric_intervals(np.zeros(20, int), np.zeros(20, int), np.ones((20, 2)), CLASSES, "yes")
    assert result.recall[1] == 1 and 0.8 < result.recall[0] < 1
    known = {name for name, interval in result.positive.to_dict().items() if interval}
    assert known == {"alerts"} and result.positive.alerts[0] == 0


def test_a_class_that_is_only_predicted_is_no_part_of_macro_recall():
    predicted = np.array([0] * 19 + [1])
    result = metric_intervals(np.zeros(20, int), predicted, np.ones((20, 2)), CLASSES, "yes")
    assert result.recall == pytest.approx(result.recall_by_class["no"], abs=0.01)
