"""Every number of a verdict against scikit-learn."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.metrics import classification_metrics, confusion_matrix, confusion_metrics

CLASSES = ["a", "b", "c", "d"]
PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)
AVERAGED = {
    "recall": metrics.recall_score,
    "precision": metrics.precision_score,
    "f1": metrics.f1_score,
}


def split(rows=200, classes=4, seed=0):
    """Labels sorted by class, and logits that are right more often than not."""
    generator = np.random.default_rng(seed)
    labels = np.sort(generator.integers(0, classes, rows))
    logits = generator.standard_normal((rows, classes)) + 1.5 * np.eye(classes)[labels]
    return labels, logits.astype(np.float32)


def expected(labels, predicted):
    with warnings.catch_warnings():  # scikit-learn warns where a ratio has no denominator; it counts as 0
        warnings.simplefilter("ignore")
        return {
            "accuracy": metrics.accuracy_score(labels, predicted),
            **{name: score(labels, predicted, average="macro", zero_division=0) for name, score in AVERAGED.items()},
        }


@settings(max_examples=200, deadline=None)
@given(PAIRS)
def test_scores_of_a_confusion_matrix_are_those_of_sklearn(pairs):
    labels, predicted = np.array(pairs).T
    confusion = confusion_matrix(labels, predicted, 4)
    np.testing.assert_array_equal(confusion, metrics.confusion_matrix(labels, predicted, labels=range(4)))
    found = confusion_metrics(confusion, CLASSES)
    for name, value in expected(labels, predicted).items():
        assert getattr(found, name) == pytest.approx(value), name
    occur = {"recall": set(labels), "precision": set(predicted), "f1": set(labels) | set(predicted)}
    for name, score in AVERAGED.items():
        by_class = score(labels, predicted, average=None, labels=range(4), zero_division=0)
        for index, label in enumerate(CLASSES):
            value = getattr(found, f"{name}_by_class")[label]
            assert value == (pytest.approx(by_class[index]) if index in occur[name] else None), (name, label)
    assert found.support_by_class == {label: int((labels == index).sum()) for index, label in enumerate(CLASSES)}


def test_an_empty_split_scores_zero_and_no_class():
    found = confusion_metrics(np.zeros((4, 4), np.int64), CLASSES)
    assert (found.accuracy, found.recall, found.f1) == (0.0, 0.0, 0.0)
    assert set(found.recall_by_class.values()) == {None}


def test_scores_of_a_split_are_those_of_sklearn():
    labels, logits = split()
    found = classification_metrics(labels, softmax(logits), CLASSES, None)
    assert found.rows == 200 and found.positive is None and "positive" not in found.to_dict()
    assert found.loss == pytest.approx(metrics.log_loss(labels, softmax(logits)))
    for name, value in expected(labels, logits.argmax(1)).items():
        assert getattr(found, name) == pytest.approx(value), name
    assert found.confusion == metrics.confusion_matrix(labels, logits.argmax(1)).tolist()


@pytest.mark.parametrize("positive", [0, 1])
def test_the_positive_block_is_that_of_sklearn(positive):
    labels, logits = split(classes=2)
    probabilities = softmax(logits)
    block = classification_metrics(labels, probabilities, ["no", "yes"], ["no", "yes"][positive]).positive
    predicted = probabilities.argmax(1)
    truth, score = labels == positive, probabilities[:, positive]
    for name, function in AVERAGED.items():
        assert getattr(block, name) == pytest.approx(function(labels, predicted, pos_label=positive))
    assert block.average_precision == pytest.approx(metrics.average_precision_score(truth, score))
    assert block.auroc == pytest.approx(metrics.roc_auc_score(truth, score))
    assert block.rows == truth.sum()
    assert block.alerts == (predicted == positive).sum()


def test_further_scores_are_those_of_sklearn():
    labels, logits = split()
    probabilities, predicted = softmax(logits), logits.argmax(1)
    found = classification_metrics(labels, probabilities, CLASSES, None)
    assert found.balanced_accuracy == pytest.approx(metrics.balanced_accuracy_score(labels, predicted))
    assert found.mcc == pytest.approx(metrics.matthews_corrcoef(labels, predicted))
    for name, function in AVERAGED.items():
        expected_value = function(labels, predicted, average="weighted", zero_division=0)
        assert getattr(found.weighted, name) == pytest.approx(expected_value)
    assert found.auroc == pytest.approx(metrics.roc_auc_score(labels, probabilities, multi_class="ovr"))
    truth = np.eye(4)[labels]
    assert found.average_precision == pytest.approx(metrics.average_precision_score(truth, probabilities))
    for k, value in found.recall_at_k.items():
        assert value == pytest.approx(metrics.top_k_accuracy_score(labels, probabilities, k=int(k)))


def test_what_was_decided_is_scored_and_not_the_most_probable():
    labels, logits = split(classes=2)
    predicted = (softmax(logits)[:, 1] >= 0.2).astype(int)
    found = classification_metrics(labels, softmax(logits), ["no", "yes"], "yes", predicted)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert found.positive.recall == pytest.approx(metrics.recall_score(labels, predicted))
    assert found.positive.alerts == predicted.sum()


def test_operating_points_lie_on_sklearns_curve():
    labels, logits = split(classes=2)
    score = softmax(logits)[:, 1]
    block = classification_metrics(labels, softmax(logits), ["no", "yes"], "yes").positive
    precision, recall, _ = metrics.precision_recall_curve(labels, score)
    for least in (0.5, 0.8, 0.9, 0.95):
        assert block.recall_at_precision[str(least)] == max(recall[precision >= least])
        assert block.precision_at_recall[str(least)] == max(precision[recall >= least])
    for share, value in block.recall_at_share.items():
        highest = np.argsort(-score)[: int(np.ceil(float(share) * 200))]
        assert value == pytest.approx(labels[highest].sum() / labels.sum())
    flat = classification_metrics(labels, np.full((200, 2), 0.5), ["no", "yes"], "yes").positive.recall_at_share
    assert flat == pytest.approx({"0.01": 0.01, "0.05": 0.05, "0.1": 0.1}), "no order among equals"


def test_the_calibration_error_is_that_of_a_plain_loop():
    labels, logits = split()
    probabilities = softmax(logits)
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    expected_value = 0.0
    for k in range(15):
        inside = (confidence > k / 15) & (confidence <= (k + 1) / 15)
        if inside.any():
            expected_value += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert classification_metrics(labels, probabilities, CLASSES, None).ece == pytest.approx(expected_value)


@pytest.mark.parametrize("present", [0, 1])
def test_curves_need_both_classes(present):
    labels = np.full(10, present)
    block = classification_metrics(labels, softmax(split(10, 2)[1]), ["no", "yes"], "yes").positive
    assert block.average_precision is None and block.auroc is None
    assert (block.recall is None) == (present == 0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-500, 500, width=32), min_size=2, max_size=5))
def test_softmax_is_exact_and_never_overflows(row):
    found = softmax(np.array([row], np.float32))
    assert found.dtype == np.float64
    torch.testing.assert_close(torch.from_numpy(found), torch.tensor([row], dtype=torch.float64).softmax(1))


def test_a_loss_of_certainty_that_is_wrong_is_finite():
    found = classification_metrics(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), ["no", "yes"], None)
    assert np.isfinite(found.loss)
