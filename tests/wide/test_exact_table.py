"""Look-up of pairs of integers in a cuckoo hash table."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.wide.exact_table import ExactTable

NUMBER = st.integers(0, 2**31 - 1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(NUMBER, NUMBER), max_size=60, unique=True), st.lists(st.tuples(NUMBER, NUMBER), max_size=20))
def test_a_pair_has_its_own_number_and_any_other_pair_has_none(pairs, others):
    prefixes, tokens = np.array(pairs, np.int64).reshape(-1, 2).T
    table = ExactTable.of_pairs(prefixes, tokens)
    expected = {pair: number for number, pair in enumerate(pairs, start=1)}
    asked = np.array([*pairs, *others], np.int64).reshape(-1, 2)
    found = table(torch.from_numpy(asked[:, 0]), torch.from_numpy(asked[:, 1]))
    assert found.tolist() == [expected.get(tuple(pair), 0) for pair in asked.tolist()]


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_dense_and_many_pairs_all_find_a_slot(count):
    prefixes, tokens = np.divmod(np.arange(count), 97)
    table = ExactTable.of_pairs(prefixes, tokens)
    found = table(torch.from_numpy(prefixes), torch.from_numpy(tokens))
    assert found.tolist() == list(range(1, count + 1))
    assert not table(torch.from_numpy(prefixes + count), torch.from_numpy(tokens)).any()


def test_the_same_pairs_give_the_same_table():
    one, other = (ExactTable.of_pairs(np.arange(500), np.arange(500) % 7) for _ in range(2))
    assert all(torch.equal(one.state_dict()[name], other.state_dict()[name]) for name in one.state_dict())
