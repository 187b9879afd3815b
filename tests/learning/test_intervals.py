"""Intervals against resampling row by row, and against the exact ones of scipy."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics

from seqclf.learning.intervals import score_intervals


def sample(rows=300, decimals=None, seed=0):
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.3).astype(int)
    score = np.clip(0.3 * labels + generator.normal(0.4, 0.2, rows), 0, 1)
    if decimals is not None:
        score = score.round(decimals)
    return labels, (score > 0.5).astype(int), np.stack([1 - score, score], axis=1)


@pytest.mark.parametrize("decimals", [None, 1])
def test_intervals_are_those_of_drawing_rows(decimals):
    labels, predicted, probabilities = sample(decimals=decimals)
    found = score_intervals(labels, predicted, probabilities, ["no", "yes"], "yes")
    generator = np.random.default_rng(1)
    drawn = [generator.integers(0, 300, 300) for _ in range(1000)]
    expected = {
        "average_precision": [metrics.average_precision_score(labels[r], probabilities[r, 1]) for r in drawn],
        "auroc": [metrics.roc_auc_score(labels[r], probabilities[r, 1]) for r in drawn],
        "recall": [metrics.recall_score(labels[r], predicted[r]) for r in drawn],
        "precision": [metrics.precision_score(labels[r], predicted[r]) for r in drawn],
        "f1": [metrics.f1_score(labels[r], predicted[r]) for r in drawn],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(found["positive"][name], np.percentile(values, [2.5, 97.5]), atol=0.02, err_msg=name)
    macro = [metrics.f1_score(labels[r], predicted[r], average="macro") for r in drawn]
    np.testing.assert_allclose(found["f1"], np.percentile(macro, [2.5, 97.5]), atol=0.02)
    accuracy = [metrics.accuracy_score(labels[r], predicted[r]) for r in drawn]
    np.testing.assert_allclose(found["accuracy"], np.percentile(accuracy, [2.5, 97.5]), atol=0.02)


def test_many_scores_are_grouped_without_moving_the_interval():
    labels, predicted, probabilities = sample(rows=6000)
    low, high = score_intervals(labels, predicted, probabilities, ["no", "yes"], "yes")["positive"]["average_precision"]
    assert low < metrics.average_precision_score(labels, probabilities[:, 1]) < high
    assert high - low < 0.05


@pytest.mark.parametrize("rows", [5000, 200_000])
def test_few_rows_without_an_error_are_not_certain(rows):
    labels = np.zeros(rows, int)
    labels[:3] = 1
    score = np.where(labels, 2.0, np.random.default_rng(0).random(rows))
    found = score_intervals(labels, labels, np.stack([-score, score], axis=1), ["no", "yes"], "yes")["positive"]
    exact = binomtest(3, 3).proportion_ci(0.95, "exact")
    for name in ("recall", "precision"):
        assert found[name] == pytest.approx([exact.low, exact.high]), name
    for name in ("f1", "average_precision", "auroc"):
        assert found[name] is None, f"{name}: no draw tells how far it may be from 1"


@pytest.mark.parametrize("found_rows", [0, 1, 10, 19, 20])
def test_shares_of_rows_have_the_exact_interval(found_rows):
    labels, predicted = np.array([1] * 20 + [0] * 80), np.zeros(100, int)
    predicted[:found_rows] = 1
    found = score_intervals(labels, predicted, np.tile([0.9, 0.1], (100, 1)), ["no", "yes"], "yes")
    exact = {
        "recall": binomtest(found_rows, 20).proportion_ci(0.95, "exact"),
        "precision": binomtest(found_rows, found_rows).proportion_ci(0.95, "exact") if found_rows else None,
    }
    for name, ends in exact.items():
        expected = None if ends is None else pytest.approx([ends.low, ends.high])
        assert found["positive"][name] == expected, name
    assert found["recall_by_class"]["yes"] == found["positive"]["recall"]
    right = binomtest(80 + found_rows, 100).proportion_ci(0.95, "exact")
    assert found["accuracy"] == pytest.approx([right.low, right.high])


def test_rare_rows_give_the_interval_of_drawing_rows():
    generator = np.random.default_rng(0)
    labels = np.zeros(20_000, int)
    labels[:40] = 1
    score = generator.normal(size=20_000) + 3 * labels
    found = score_intervals(labels, labels, np.stack([-score, score], axis=1), ["no", "yes"], "yes")["positive"]
    drawn = [generator.integers(0, 20_000, 20_000) for _ in range(300)]
    values = [metrics.average_precision_score(labels[r], score[r]) for r in drawn]
    np.testing.assert_allclose(found["average_precision"], np.percentile(values, [2.5, 97.5]), atol=0.03)


def test_the_same_rows_give_the_same_intervals():
    assert score_intervals(*sample(), ["no", "yes"], "yes") == score_intervals(*sample(), ["no", "yes"], "yes")


def test_many_classes_take_little_memory():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2000, 500)
    found = score_intervals(labels, labels, np.zeros((500, 2000)), [str(k) for k in range(2000)], None)
    assert found["accuracy"] == pytest.approx([binomtest(500, 500).proportion_ci(0.95, "exact").low, 1.0])
    assert len(found["recall_by_class"]) == len(set(labels.tolist()))
