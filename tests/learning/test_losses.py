"""Cross-entropy and the weights of its classes."""

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional

from seqclf.errors import InputError
from seqclf.learning.losses import CrossEntropy

CLASSES, COUNTS = ["calm", "odd", "wild"], [60, 30, 10]
LABELS = np.repeat([0, 1, 2], COUNTS)


def loss(class_weights=None, label_smoothing=0.0):
    return CrossEntropy(CLASSES, COUNTS, class_weights=class_weights, label_smoothing=label_smoothing)


def batch(rows=100):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, 3, generator=generator), torch.from_numpy(LABELS[:rows])


def test_without_weights_it_is_the_log_loss():
    logits, labels = batch()
    assert float(loss()(logits, labels)) == pytest.approx(log_loss(labels, logits.softmax(1).numpy()), rel=1e-5)


def test_balanced_weights_are_those_of_sklearn():
    expected = compute_class_weight("balanced", classes=np.arange(3), y=LABELS)
    assert loss("balanced").weights.tolist() == pytest.approx(expected.tolist())


@pytest.mark.parametrize("given", ["balanced", {"wild": 5.0}, {"calm": 1, "odd": 2, "wild": 3}])
def test_weights_have_a_mean_of_one_over_the_training_rows(given):
    weights = loss(given).weights.numpy()
    assert weights[LABELS].mean() == pytest.approx(1.0)
    if isinstance(given, dict):
        raw = np.array([float(given.get(label, 1.0)) for label in CLASSES])
        np.testing.assert_allclose(weights / weights[0], raw / raw[0], rtol=1e-6)


@pytest.mark.parametrize("given", [None, "balanced", {"wild": 5.0}])
def test_a_row_weighs_the_same_whatever_its_batch_mates(given):
    """The mean over all rows is the mean of batches weighted by their sizes; torch's own `weight=` breaks this."""
    logits, labels = batch()
    criterion = loss(given)
    parts = [(criterion(logits[rows], labels[rows]), len(rows)) for rows in torch.arange(100).split([97, 2, 1])]
    whole = sum(value * rows for value, rows in parts) / 100
    assert float(criterion(logits, labels)) == pytest.approx(float(whole), rel=1e-5)


def test_weighted_loss_is_a_plain_sum():
    logits, labels = batch()
    criterion = loss({"odd": 2.0})
    plain = [-criterion.weights[k] * row.log_softmax(0)[k] for row, k in zip(logits, labels, strict=True)]
    assert float(criterion(logits, labels)) == pytest.approx(float(sum(plain) / 100), rel=1e-5)


def test_label_smoothing_is_that_of_torch():
    logits, labels = batch()
    expected = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(loss(label_smoothing=0.1)(logits, labels), expected)


def test_an_unknown_label_is_refused_by_name():
    with pytest.raises(InputError, match=r"loss\.class_weights: no label 'tame'; the labels are calm, odd, wild"):
        loss({"tame": 2.0})


def test_an_unknown_kind_of_weights_is_refused_by_name():
    with pytest.raises(InputError, match=r"loss\.class_weights=equal: must be null, balanced or \{label: weight\}"):
        loss("equal")
