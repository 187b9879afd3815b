"""Metrics of a split, each compared with scikit-learn."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from seqclf.evaluation.calibration import calibration_error, softmax
from seqclf.evaluation.metrics import classification_metrics, confusion_matrix, confusion_metrics
from seqclf.evaluation.ranking import recall_of_highest

CLASSES = ["a", "b", "c", "d"]
LABEL_PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)
SKLEARN_METRICS = {"recall": metrics.recall_score, "precision": metrics.precision_score, "f1": metrics.f1_score}


def sample_split(rows=200, classes=4, seed=0):
    """Labels sorted by class, and logits that are right more often than not."""
    generator = np.random.default_rng(seed)
    labels = np.sort(generator.integers(0, classes, rows))
    logits = generator.standard_normal((rows, classes)) + 1.5 * np.eye(classes)[labels]
    return labels, logits.astype(np.float32)


def sklearn_metrics(labels, predicted):
    with warnings.catch_warnings():  # scikit-learn warns where a ratio has no denominator; it counts as 0
        warnings.simplefilter("ignore")
        macro = {
            name: function(labels, predicted, average="macro", zero_division=0)
            for name, function in SKLEARN_METRICS.items()
        }
        macro["recall"] = metrics.balanced_accuracy_score(labels, predicted)  # over the classes that have rows
        return {"accuracy": metrics.accuracy_score(labels, predicted), **macro}


@settings(max_examples=60)
@given(LABEL_PAIRS)
def test_metrics_of_a_confusion_matrix_equal_those_of_sklearn(label_pairs):
    labels, predicted = np.array(label_pairs).T
    confusion = confusion_matrix(labels, predicted, 4)
    np.testing.assert_array_equal(confusion, metrics.confusion_matrix(labels, predicted, labels=range(4)))
    result = confusion_metrics(confusion, CLASSES)
    for name, value in sklearn_metrics(labels, predicted).items():
        assert getattr(result, name) == pytest.approx(value), name
    defined = {"recall": set(labels), "precision": set(predicted), "f1": set(labels) | set(predicted)}
    for name, function in SKLEARN_METRICS.items():
        by_class = function(labels, predicted, average=None, labels=range(4), zero_division=0)
        for index, label in enumerate(CLASSES):
            value = getattr(result, f"{name}_by_class")[label]
            assert value == (pytest.approx(by_class[index]) if index in defined[name] else None), (name, label)
    assert result.support_by_class == {label: int((labels == index).sum()) for index, label in enumerate(CLASSES)}


def test_loss_confusion_and_macro_metrics_of_a_split_equal_those_of_sklearn():
    labels, logits = sample_split()
    result = classification_metrics(labels, softmax(logits), CLASSES, None)
    assert result.rows == 200 and result.positive is None and "positive" not in result.to_dict()
    assert result.loss == pytest.approx(metrics.log_loss(labels, softmax(logits)))
    for name, value in sklearn_metrics(labels, logits.argmax(1)).items():
        assert getattr(result, name) == pytest.approx(value), name
    assert result.confusion == metrics.confusion_matrix(labels, logits.argmax(1)).tolist()
    assert result.ece == pytest.approx(calibration_error(labels, softmax(logits)))


@pytest.mark.parametrize("positive", [0, 1])
def test_metrics_of_the_positive_label_equal_those_of_sklearn(positive):
    labels, logits = sample_split(classes=2)
    probabilities = softmax(logits)
    result = classification_metrics(labels, probabilities, ["no", "yes"], ["no", "yes"][positive]).positive
    predicted = probabilities.argmax(1)
    is_positive, score = labels == positive, probabilities[:, positive]
    for name, function in SKLEARN_METRICS.items():
        assert getattr(result, name) == pytest.approx(function(labels, predicted, pos_label=positive))
    assert result.average_precision == pytest.approx(metrics.average_precision_score(is_positive, score))
    assert result.auroc == pytest.approx(metrics.roc_auc_score(is_positive, score))
    assert result.rows == is_positive.sum()
    assert result.alerts == (predicted == positive).sum()


def test_ranking_metrics_equal_those_of_sklearn():
    labels, logits = sample_split()
    probabilities, predicted = softmax(logits), logits.argmax(1)
    result = classification_metrics(labels, probabilities, CLASSES, None)
    assert result.mcc == pytest.approx(metrics.matthews_corrcoef(labels, predicted))
    assert result.auroc == pytest.approx(metrics.roc_auc_score(labels, probabilities, multi_class="ovr"))
    one_hot = np.eye(4)[labels]
    assert result.average_precision == pytest.approx(metrics.average_precision_score(one_hot, probabilities))


def test_metrics_follow_the_predicted_labels_and_not_the_argmax():
    labels, logits = sample_split(classes=2)
    predicted = (softmax(logits)[:, 1] >= 0.2).astype(int)
    result = classification_metrics(labels, softmax(logits), ["no", "yes"], "yes", predicted)
    assert result.accuracy == pytest.approx(metrics.accuracy_score(labels, predicted))
    assert result.positive.recall == pytest.approx(metrics.recall_score(labels, predicted))
    assert result.positive.alerts == predicted.sum()


def test_tied_scores_have_the_recall_of_a_random_order():
    is_positive = sample_split(classes=2)[0] == 1
    assert recall_of_highest(is_positive, np.full(200, 0.5), 10) == pytest.approx(0.05)


@pytest.mark.parametrize("only_class", [0, 1])
def test_ranking_metrics_need_rows_of_both_classes(only_class):
    labels = np.full(10, only_class)
    result = classification_metrics(labels, softmax(sample_split(10, 2)[1]), ["no", "yes"], "yes").positive
    assert result.average_precision is None and result.auroc is None
    assert (result.recall is None) == (only_class == 0)


def test_the_loss_of_a_certain_but_wrong_prediction_is_finite():
    result = classification_metrics(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]), ["no", "yes"], None)
    assert np.isfinite(result.loss)
