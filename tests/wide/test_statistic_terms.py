"""What the statistics of a path add: exact sums, texts, and the classes that they speak for."""

import numpy as np
import pytest
import torch

from seqclf.wide.feature_path import padded
from seqclf.wide.statistic_terms import contributions, terms_of_statistics
from seqclf.wide.statistics import Statistics

FIELDS = [{"name": "vitals", "kind": "number", "width": 2}, {"name": "gap", "kind": "number", "width": 1}]
NAMES = {"vitals": ["pulse", "pressure"], "gap": ["gap of time"]}


@pytest.fixture(scope="module")
def train(rows_of, split_of):
    """Rows whose pressure is high in class 0 and low in class 2."""
    generator = np.random.default_rng(0)
    sequences, labels = rows_of(generator, 240, FIELDS), generator.integers(0, 3, 240)
    sequences.fields["vitals"][:, 1] -= np.repeat(3 * (labels - 1), sequences.lengths)
    return split_of(sequences, labels)


@pytest.fixture
def path(train):
    return Statistics.fit(train, FIELDS, 3, 0).path


def predicted(path, train):
    with torch.inference_mode():
        return path(*padded(train.sequences, np.arange(len(train.labels)))).argmax(1).numpy()


def test_contributions_of_all_statistics_are_the_mean_logit_of_the_class(path, train):
    """Relative to the mean over the classes, and without the bias, for the rows that are taken for the class."""
    with torch.inference_mode():
        logits = path(*padded(train.sequences, np.arange(240))).double().numpy()
    added, _, taken = contributions(path, train.sequences, logits.argmax(1), scale=2.0)
    unbiased = logits - path.bias.double().numpy()
    for number in range(3):
        of_class = unbiased[logits.argmax(1) == number]
        assert taken[number] == len(of_class) > 20
        expected = 2 * (of_class[:, number] - of_class.mean(1)).mean()
        assert added[number].sum() == pytest.approx(expected, abs=1e-5)


def test_the_planted_channel_is_named_with_its_side(path, train):
    found = terms_of_statistics(path, train.sequences, predicted(path, train), NAMES)
    high, _, low = (terms[0].text for terms in found)
    assert high.startswith("high ") and low.startswith("low ")
    assert high.endswith(" pressure") and low.endswith(" pressure")


def test_a_class_that_no_row_is_taken_for_has_no_terms(path, train):
    path.bias[1] -= 1e6
    found = terms_of_statistics(path, train.sequences, predicted(path, train), NAMES)
    assert found[0] and found[1] == []
