"""Intervals against the exact ones of scipy, and their limits; how often they cover is in test_coverage.py."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics

from seqclf.evaluation.intervals import metric_intervals


def sample(rows=300, decimals=None, seed=0):
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.3).astype(int)
    score = np.clip(0.3 * labels + generator.normal(0.4, 0.2, rows), 0, 1)
    if decimals is not None:
        score = score.round(decimals)
    return labels, (score > 0.5).astype(int), np.stack([1 - score, score], axis=1)


@pytest.mark.parametrize("decimals", [None, 1])
@pytest.mark.parametrize("rows", [50, 6000])
def test_each_interval_holds_its_score(decimals, rows):
    labels, predicted, probabilities = sample(rows, decimals)
    result = metric_intervals(labels, predicted, probabilities, ["no", "yes"], "yes")
    expected = {
        "average_precision": metrics.average_precision_score(labels, probabilities[:, 1]),
        "auroc": metrics.roc_auc_score(labels, probabilities[:, 1]),
        "recall": metrics.recall_score(labels, predicted),
        "precision": metrics.precision_score(labels, predicted),
        "f1": metrics.f1_score(labels, predicted),
    }
    macro = {
        "accuracy": metrics.accuracy_score(labels, predicted),
        "recall": metrics.recall_score(labels, predicted, average="macro"),
        "precision": metrics.precision_score(labels, predicted, average="macro"),
        "f1": metrics.f1_score(labels, predicted, average="macro"),
    }
    for intervals, values in ((result.positive, expected), (result, macro)):
        for name, value in values.items():
            low, high = getattr(intervals, name)
            assert low < value < high, name
            assert high - low < 5 / rows**0.5, name


def test_without_an_error_every_score_has_an_upper_limit_of_one_and_a_lower_one_below():
    for rows in (5000, 200_000):
        labels = np.zeros(rows, int)
        labels[:3] = 1
        score = np.where(labels, 2.0, np.random.default_rng(0).random(rows))
        result = metric_intervals(labels, labels, np.stack([-score, score], axis=1), ["no", "yes"], "yes")
        exact = binomtest(3, 3).proportion_ci(0.95, "exact")
        for name in ("recall", "precision", "average_precision"):
            assert getattr(result.positive, name) == pytest.approx((exact.low, exact.high), rel=1e-3), name
        assert result.positive.f1 == pytest.approx((2 * exact.low / (1 + exact.low), 1.0))
        assert result.positive.auroc == pytest.approx((exact.low, 1.0), abs=0.05)
        for name in ("recall", "precision", "f1"):
            assert 0.5 < getattr(result, name)[0] < 0.8 and getattr(result, name)[1] == 1, name


@pytest.mark.parametrize("found_rows", [0, 1, 10, 19, 20])
def test_shares_of_rows_have_the_exact_interval(found_rows):
    labels, predicted = np.array([1] * 20 + [0] * 80), np.zeros(100, int)
    predicted[:found_rows] = 1
    found = metric_intervals(labels, predicted, np.tile([0.9, 0.1], (100, 1)), ["no", "yes"], "yes")
    exact = {
        "recall": binomtest(found_rows, 20).proportion_ci(0.95, "exact"),
        "precision": binomtest(found_rows, found_rows).proportion_ci(0.95, "exact") if found_rows else None,
    }
    for name, ends in exact.items():
        expected = None if ends is None else pytest.approx((ends.low, ends.high))
        assert getattr(found.positive, name) == expected, name
    assert found.recall_by_class["yes"] == found.positive.recall
    right = binomtest(80 + found_rows, 100).proportion_ci(0.95, "exact")
    assert found.accuracy == pytest.approx((right.low, right.high))


def test_the_same_rows_give_the_same_intervals():
    assert metric_intervals(*sample(), ["no", "yes"], "yes") == metric_intervals(*sample(), ["no", "yes"], "yes")


def test_many_classes_take_little_memory():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2000, 500)
    found = metric_intervals(labels, labels, np.zeros((500, 2000)), [str(k) for k in range(2000)], None)
    assert found.accuracy == pytest.approx((binomtest(500, 500).proportion_ci(0.95, "exact").low, 1.0))
    assert len(found.recall_by_class) == len(set(labels.tolist()))


def test_a_single_class_and_a_class_that_is_only_predicted_have_intervals():
    one = metric_intervals(np.zeros(20, int), np.zeros(20, int), np.ones((20, 2)), ["no", "yes"], "yes")
    assert one.recall[1] == 1 and 0.8 < one.recall[0] < 1
    assert set(one.positive.to_dict().values()) == {None}
    predicted = np.array([0] * 19 + [1])
    two = metric_intervals(np.zeros(20, int), predicted, np.ones((20, 2)), ["no", "yes"], "yes")
    assert two.recall[0] < 0.5 < two.recall[1], "the recall of a class without rows may be anything"
