"""Edges: few lengths that all others are rounded up to, at the least cost."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.batching import bucket_boundaries as under_test
from seqclf.batching.bucket_boundaries import bucket_edges, round_up


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 14), min_size=1, max_size=40).map(np.array), st.integers(1, 5))
def test_no_other_choice_pads_less(lengths, count):
    found = bucket_edges(lengths, count)
    values = np.unique(lengths).tolist()
    assert len(found) <= count and found[-1] == max(values) and (np.diff(found) > 0).all()
    added = round_up(lengths, found).sum()
    others = (
        np.array([*chosen, max(values)])
        for size in range(min(count, len(values)))
        for chosen in combinations(values[:-1], size)
    )
    assert added == min(round_up(lengths, other).sum() for other in others)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_many_different_lengths_are_rounded_up_nearly_as_well(monkeypatch, count):
    lengths = np.random.default_rng(0).integers(1, 5000, 3000)
    found = bucket_edges(lengths, count)
    assert len(found) == count and found[-1] == lengths.max()
    monkeypatch.setattr(under_test, "MOST_CANDIDATES", 10_000)
    best = round_up(lengths, bucket_edges(lengths, count)).sum()
    assert best <= round_up(lengths, found).sum() <= 1.01 * best


def test_a_length_beyond_the_last_edge_stays():
    assert round_up(np.array([1, 5, 6, 9, 11]), np.array([5, 9])).tolist() == [5, 5, 9, 9, 11]
