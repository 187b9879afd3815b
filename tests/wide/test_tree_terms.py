"""What the features of boosted trees add: exact sums, texts with their side, and the classes that they speak for."""

import numpy as np
import pytest
import torch

from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.feature_path import padded
from seqclf.wide.tree_terms import contributions, terms_of_trees

FIELDS = [{"name": "vitals", "kind": "number", "width": 2}, {"name": "event", "kind": "category", "size": 4}]
NAMES = {"vitals": ["pulse", "pressure"]}
TEXTS = {"event": lambda ids: [f"event{number}" for number in ids]}


@pytest.fixture(scope="module")
def train(rows_of, split_of):
    """Rows whose pressure is high in class 0 and low in class 2; class 1 has an event that the others lack."""
    generator = np.random.default_rng(0)
    sequences, labels = rows_of(generator, 300, FIELDS), generator.integers(0, 3, 300)
    of_token = np.repeat(labels, sequences.lengths)
    sequences.fields["vitals"][:, 1] -= 3 * (of_token - 1)
    sequences.fields["event"][(sequences.fields["event"] == 3) & (of_token != 1)] = 2
    return split_of(sequences, labels)


@pytest.fixture
def path(train):
    return BoostedTrees.fit(train, FIELDS, 3, 0).path


def predicted(path, train):
    with torch.inference_mode():
        return path(*padded(train.sequences, np.arange(len(train.labels)))).argmax(1).numpy()


def test_contributions_of_all_features_are_the_mean_logit_of_the_class(path, train):
    """Relative to the mean over all rows and over the classes."""
    with torch.inference_mode():
        logits = path(*padded(train.sequences, np.arange(300))).double().numpy()
    added, taken = contributions(path, train.sequences, logits.argmax(1), scale=2.0)
    centred = logits - logits.mean(1, keepdims=True)
    for number in range(3):
        is_taken = logits.argmax(1) == number
        assert taken[number] == is_taken.sum() > 20
        expected = 2 * (centred[is_taken, number].mean() - centred[:, number].mean())
        assert added[number].sum() == pytest.approx(expected, abs=1e-4)


def test_the_planted_features_are_named_with_their_side(path, train):
    found = terms_of_trees(path, train.sequences, predicted(path, train), NAMES, TEXTS)
    high, _, low = (terms[0].text for terms in found)
    assert high.startswith("high ") and high.endswith(" pressure")
    assert low.startswith("low ") and low.endswith(" pressure")
    assert "high count of event event3" in [term.text for term in found[1]]


def test_a_class_that_no_row_is_taken_for_has_no_terms(path, train):
    path.bias[1] -= 1e6
    found = terms_of_trees(path, train.sequences, predicted(path, train), NAMES, TEXTS)
    assert found[0] and found[1] == []
