"""Bootstrap intervals against resampling row by row."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn import metrics

from seqclf.learning.intervals import bootstrap


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
    found = bootstrap(labels, predicted, probabilities, ["no", "yes"], "yes")
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
    low, high = bootstrap(labels, predicted, probabilities, ["no", "yes"], "yes")["positive"]["average_precision"]
    assert low < metrics.average_precision_score(labels, probabilities[:, 1]) < high
    assert high - low < 0.05


@pytest.mark.parametrize("rows", [5000, 200_000])
def test_few_rows_without_an_error_are_not_certain(rows):
    labels = np.zeros(rows, int)
    labels[:3] = 1
    score = np.where(labels, 2.0, np.random.default_rng(0).random(rows))
    found = bootstrap(labels, labels, np.stack([-score, score], axis=1), ["no", "yes"], "yes")["positive"]
    exact = binomtest(3, 3).proportion_ci(0.95, "exact")
    for name in ("recall", "precision"):
        assert found[name] == pytest.approx([exact.low, exact.high]), name
    for name in ("f1", "average_precision", "auroc"):
        assert found[name] is None, f"{name}: no draw tells how far it may be from 1"


def test_rows_that_are_all_wrong_are_not_certain_either():
    labels = np.array([1] * 20 + [0] * 80)
    found = bootstrap(labels, np.zeros(100, int), np.tile([0.9, 0.1], (100, 1)), ["no", "yes"], "yes")
    exact = binomtest(0, 20).proportion_ci(0.95, "exact")
    assert found["positive"]["recall"] == pytest.approx([exact.low, exact.high])
    assert found["recall_by_class"]["yes"] == found["positive"]["recall"]
    assert found["positive"]["precision"] is None, "there are no alerts"
    assert found["accuracy"][0] > 0.6


def test_rare_rows_give_the_interval_of_drawing_rows():
    generator = np.random.default_rng(0)
    labels = np.zeros(20_000, int)
    labels[:40] = 1
    score = generator.normal(size=20_000) + 3 * labels
    found = bootstrap(labels, labels, np.stack([-score, score], axis=1), ["no", "yes"], "yes")["positive"]
    drawn = [generator.integers(0, 20_000, 20_000) for _ in range(300)]
    values = [metrics.average_precision_score(labels[r], score[r]) for r in drawn]
    np.testing.assert_allclose(found["average_precision"], np.percentile(values, [2.5, 97.5]), atol=0.03)


def test_the_same_rows_give_the_same_intervals():
    assert bootstrap(*sample(), ["no", "yes"], "yes") == bootstrap(*sample(), ["no", "yes"], "yes")


def test_many_classes_take_little_memory():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2000, 500)
    found = bootstrap(labels, labels, np.zeros((500, 2000)), [str(k) for k in range(2000)], None)
    assert found["accuracy"] == pytest.approx([binomtest(500, 500).proportion_ci(0.95, "exact").low, 1.0])
    assert len(found["recall_by_class"]) == len(set(labels.tolist()))
