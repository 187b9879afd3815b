"""Bucket boundaries add as few tokens as possible."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.batching import plan as bucket_boundaries
from seqclf.batching.plan import bucket_edges, round_up


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 14), min_size=1, max_size=40).map(np.array), st.integers(1, 5))
def test_no_other_edges_pad_less(lengths, count):
    edges = bucket_edges(lengths, count)
    values = np.unique(lengths).tolist()
    assert len(edges) <= count and edges[-1] == max(values) and (np.diff(edges) > 0).all()
    total = round_up(lengths, edges).sum()
    others = (
        np.array([*subset, max(values)])
        for size in range(min(count, len(values)))
        for subset in combinations(values[:-1], size)
    )
    assert total == min(round_up(lengths, other).sum() for other in others)


@pytest.mark.parametrize("count", [1, 4, 16])
def test_many_different_lengths_are_rounded_up_nearly_as_well(monkeypatch, count):
    lengths = np.random.default_rng(0).integers(1, 5000, 3000)
    edges = bucket_edges(lengths, count)
    assert len(edges) == count and edges[-1] == lengths.max()
    monkeypatch.setattr(bucket_boundaries, "MAX_CANDIDATES", 10_000)
    best = round_up(lengths, bucket_edges(lengths, count)).sum()
    assert best <= round_up(lengths, edges).sum() <= 1.01 * best


def test_a_length_beyond_the_last_edge_stays():
    assert round_up(np.array([1, 5, 6, 9, 11]), np.array([5, 9])).tolist() == [5, 5, 9, 9, 11]
