"""The features of rows for boosted trees: as NumPy computes them, within their limits, and named in their order."""

import itertools

import numpy as np
import pytest
import torch

from seqclf.wide import row_features
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.feature_path import padded
from seqclf.wide.row_features import RowFeatures

FIELDS = [
    {"name": "value", "kind": "number", "width": 2},
    {"name": "other", "kind": "number", "width": 2, "masked": 1},  # a value and its mask
    {"name": "token", "kind": "category", "size": 3},
    {"name": "bag", "kind": "bag", "size": 4},
]
CHANNELS = ["amount", "age", "pulse", "presence of pulse"]
VALUES = {"token": ["<unknown>", "pay", "call"], "bag": ["<none>", "red", "green", "blue"]}
LOWEST = np.finfo(np.float32).min


@pytest.fixture(scope="module")
def read(rows_of):
    """Random rows, and dict name → column (N,) of their features."""
    sequences = rows_of(np.random.default_rng(0), 80, FIELDS)
    features = RowFeatures(FIELDS)
    features.choose_levels(sequences, np.arange(80), 0)
    with torch.inference_mode():
        found = features(*padded(sequences, np.arange(80))).numpy()
    texts = features.texts(CHANNELS, VALUES)
    assert found.shape == (80, features.size) and len(texts) == len(set(texts)) == features.size
    return sequences, features, dict(zip(texts, found.T, strict=True))


def tokens_of(sequences, name):
    return [sequences.fields[name][start:stop] for start, stop in itertools.pairwise(sequences.offsets)]


def test_values_are_counted(read):
    sequences, _, columns = read
    for at, text in enumerate(VALUES["token"]):
        expected = [(ids == at).sum() for ids in tokens_of(sequences, "token")]
        np.testing.assert_array_equal(columns[f"count of token {text}"], expected)
    for at, text in enumerate(VALUES["bag"][1:], 1):
        expected = [(ids == at).sum() for ids in tokens_of(sequences, "bag")]
        np.testing.assert_array_equal(columns[f"count of bag {text}"], expected)


def test_pairs_of_values_of_a_set_are_counted(read):
    sequences, _, columns = read
    for (one, first), (other, second) in itertools.combinations(list(enumerate(VALUES["bag"]))[1:], 2):
        expected = [((ids == one).any(1) & (ids == other).any(1)).sum() for ids in tokens_of(sequences, "bag")]
        np.testing.assert_array_equal(columns[f"count of bag {first} with {second}"], expected)


def test_shares_above_levels_are_those_of_the_values_that_are_present(read):
    sequences, features, columns = read
    amounts = np.sort(sequences.fields["value"][:, 0])
    assert (features.levels[0].numpy() > amounts[0]).all() and (np.diff(features.levels[0].numpy()) > 0).all()
    for number, (channel, name, at) in enumerate([("amount", "value", 0), ("pulse", "other", 0)]):
        median = float(features.levels[2 * number, 1])
        expected = []
        for values in tokens_of(sequences, name):
            known = values[values[:, 1] > 0, at] if name == "other" else values[:, at]
            expected.append((known > median).mean() if len(known) else 0)
        np.testing.assert_allclose(columns[f"share of {channel} above its 50% quantile"], expected, atol=1e-6)


def test_numbers_are_pooled_in_the_tokens_with_a_value(read):
    """Some rows have no such token, or no value that is present in it."""
    sequences, _, columns = read
    rows = zip(tokens_of(sequences, "token"), tokens_of(sequences, "other"), strict=True)
    pulses = [values[(ids == 1) & (values[:, 1] > 0), 0] for ids, values in rows]
    assert 0 < sum(len(known) == 0 for known in pulses) < 80
    for name, function, empty in (("mean", np.mean, 0), ("highest", np.max, LOWEST), ("lowest", np.min, -LOWEST)):
        expected = [function(known.astype(np.float64)) if len(known) else empty for known in pulses]
        np.testing.assert_allclose(columns[f"{name} pulse of token pay"], expected, rtol=1e-6)


def test_limits_leave_blocks_out(monkeypatch):
    assert RowFeatures([{**FIELDS[2], "size": 1000}, FIELDS[0]]).counted == []
    monkeypatch.setattr(row_features, "MAX_JOINT", 8)
    assert RowFeatures(FIELDS).joint == []
    monkeypatch.setattr(row_features, "MAX_JOINT", 9)
    assert RowFeatures(FIELDS).joint == [("token", 3)]
    monkeypatch.setattr(row_features, "MAX_LEVELLED", 3)
    assert RowFeatures(FIELDS).levels.numel() == 0
    assert RowFeatures([{**FIELDS[3], "size": 33}]).paired == [("bag", 33)]
    assert RowFeatures([{**FIELDS[3], "size": 34}]).paired == []


@pytest.mark.parametrize("told_by", ["the amount of one kind of token", "a median beside extreme values"])
def test_trees_find(told_by, rows_of, split_of):
    generator = np.random.default_rng(0)
    sequences = rows_of(generator, 500, FIELDS, longest=20)
    amounts, row = sequences.fields["value"], np.repeat(np.arange(500), sequences.lengths)
    labels = generator.integers(0, 2, 500)
    if told_by.startswith("the amount"):
        labels = np.bincount(row, (amounts[:, 0] > 0.8) & (sequences.fields["token"] == 1)) > 0
    else:
        amounts[:, 0] = labels[row] + generator.standard_t(1, len(row)) ** 3
    fitted = BoostedTrees.fit(split_of(sequences, labels.astype(int)), FIELDS, 2, 0)
    assert (fitted.held_out.argmax(1) == labels).mean() > 0.8
