"""Metrics by length and of truncated rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score

from seqclf.evaluation.slices import BUCKETS, ScoredRows, length_buckets, slice_metrics, slices_by_length


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200))
def test_every_length_is_in_one_bucket_and_no_bucket_is_empty(lengths):
    buckets = length_buckets(np.array(lengths))
    assert len(buckets) <= BUCKETS
    for length in lengths:
        assert sum(low <= length <= high for low, high in buckets) == 1
    for low, high in buckets:
        assert any(low <= length <= high for length in lengths)


def test_buckets_hold_equally_many_rows():
    lengths = np.random.default_rng(0).permutation(1000)
    assert [((lengths >= low) & (lengths <= high)).sum() for low, high in length_buckets(lengths)] == [200] * 5


def test_slice_metrics_equal_those_of_the_rows_alone():
    generator = np.random.default_rng(0)
    lengths, labels = generator.integers(1, 50, 400), generator.integers(0, 2, 400)
    score = generator.random(400)
    probabilities, predicted = np.stack([1 - score, score], axis=1), (score > 0.3).astype(int)
    predictions = ScoredRows(labels, predicted, probabilities, ["no", "yes"], "yes")
    slices = slices_by_length(predictions, lengths)
    assert sum(part.rows for part in slices) == 400
    for part in slices:
        rows = (lengths >= part.low) & (lengths <= part.high)
        assert part.accuracy == pytest.approx(accuracy_score(labels[rows], predicted[rows]))
        expected = average_precision_score(labels[rows], score[rows])
        assert part.positive.average_precision == pytest.approx(expected)
    is_long = lengths > 40
    truncated = slice_metrics(predictions, is_long)
    assert truncated.rows == is_long.sum()
    assert truncated.accuracy == pytest.approx(accuracy_score(labels[is_long], predicted[is_long]))
