"""Scores by length and of cut rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score

from seqclf.evaluation.slices import BUCKETS, length_buckets, slice_scores


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200))
def test_every_length_is_in_one_bucket(lengths):
    buckets = length_buckets(np.array(lengths))
    assert len(buckets) <= BUCKETS
    for length in lengths:
        assert sum(low <= length <= high for low, high in buckets) == 1
    for low, high in buckets:
        assert any(low <= length <= high for length in lengths)


def test_buckets_are_about_equally_full():
    lengths = np.random.default_rng(0).permutation(1000)
    assert [((lengths >= low) & (lengths <= high)).sum() for low, high in length_buckets(lengths)] == [200] * 5


def test_each_part_is_scored_as_a_split_of_its_own():
    generator = np.random.default_rng(0)
    lengths, labels = generator.integers(1, 50, 400), generator.integers(0, 2, 400)
    score = generator.random(400)
    probabilities, predicted = np.stack([1 - score, score], axis=1), (score > 0.3).astype(int)
    found = slice_scores(labels, predicted, probabilities, lengths, lengths > 40, ["no", "yes"], "yes")
    assert sum(part["rows"] for part in found["by_length"]) == 400
    for part in found["by_length"]:
        rows = (lengths >= part["low"]) & (lengths <= part["high"])
        assert part["accuracy"] == pytest.approx(accuracy_score(labels[rows], predicted[rows]))
        expected = average_precision_score(labels[rows], score[rows])
        assert part["positive"]["average_precision"] == pytest.approx(expected)
    assert found["truncated"]["rows"] == (lengths > 40).sum()
    assert found["truncated"]["accuracy"] == pytest.approx(
        accuracy_score(labels[lengths > 40], predicted[lengths > 40])
    )
    uncut = slice_scores(labels, predicted, probabilities, lengths, lengths > 50, ["no", "yes"], "yes")
    assert uncut["truncated"] is None
