"""Flat values of list columns, also of slices."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.ragged import list_lengths, list_offsets, list_values, vector_values

VECTOR_ROWS = st.lists(st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), min_size=1, max_size=4), min_size=1)
VECTORS = pa.list_(pa.list_(pa.float64()))


@given(VECTOR_ROWS)
def test_vectors_are_laid_end_to_end(rows):
    column = pa.array(rows, VECTORS)
    assert list_lengths(column).tolist() == [len(row) for row in rows]
    assert vector_values(column, 2).tolist() == [token for row in rows for token in row]


@given(VECTOR_ROWS)
def test_a_slice_holds_its_rows_only(rows):
    sliced = pa.array([[[9.0, 9.0]], *rows], VECTORS).slice(1)
    np.testing.assert_array_equal(vector_values(sliced, 2), vector_values(pa.array(rows, VECTORS), 2))
    numbers = pa.array([[9], *([len(row)] for row in rows)]).slice(1)
    assert list_values(numbers).tolist() == [len(row) for row in rows]


def test_offsets_bound_the_rows():
    assert list_offsets(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
