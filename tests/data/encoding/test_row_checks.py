"""Row checks refuse exactly the rows that a plain loop refuses, with the right reason."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.encoding.encoders import make_encoders
from seqclf.data.encoding.row_checks import check_rows
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.rows import Refusal, SourceRows
from seqclf.data.schema.schema import Field, Schema

VALUE = st.none() | st.floats(-5, 5) | st.sampled_from([math.nan, math.inf, -math.inf, 1e39])
VECTOR = st.none() | st.lists(VALUE, max_size=3)
CATEGORY = Field("c", "category", ("c col",), "integer")
NUMBER = Field("n", "number", ("n col",), width=1)
VECTORS = Field("v", "number", ("v col",), width=2)


def inspect(columns, schema, labelled=True):
    return check_rows(columns, schema, make_encoders(schema.fields), labelled)


def problems(schema, **columns):
    return inspect(pa.record_batch(columns), schema)


def usable_number(value):
    return value is not None and math.isfinite(value) and abs(value) < 3.4e38


@given(st.lists(st.none() | st.lists(VALUE, max_size=3), min_size=1, max_size=8))
def test_numbers_agree_with_a_plain_loop(rows):
    checked = problems(Schema((NUMBER,)), n=pa.array(rows, pa.list_(pa.float64())))
    assert checked.usable.tolist() == [bool(row) and all(map(usable_number, row)) for row in rows]


@given(st.lists(st.none() | st.lists(VECTOR, max_size=3), min_size=1, max_size=8))
def test_vectors_agree_with_a_plain_loop(rows):
    checked = problems(Schema((VECTORS,)), v=pa.array(rows, pa.list_(pa.list_(pa.float64()))))

    def usable(row):
        return bool(row) and all(
            token is not None and len(token) == 2 and all(map(usable_number, token)) for token in row
        )

    assert checked.usable.tolist() == [usable(row) for row in rows]
    assert sorted(checked.first_problems) == [row for row, good in enumerate(checked.usable) if not good]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(), max_size=3), min_size=1, max_size=8), st.data())
def test_fields_must_have_the_same_number_of_tokens(rows, data):
    rows = [None if row is None else [None if token is None else token % 9 for token in row] for row in rows]
    numbers = data.draw(st.lists(st.lists(st.floats(0, 1), max_size=3), min_size=len(rows), max_size=len(rows)))
    both = Schema((CATEGORY, NUMBER))
    checked = problems(both, c=pa.array(rows, pa.list_(pa.int64())), n=pa.array(numbers, pa.list_(pa.float64())))
    expected = [
        bool(row) and None not in row and len(row) == len(other) for row, other in zip(rows, numbers, strict=True)
    ]
    assert checked.usable.tolist() == expected


@pytest.mark.parametrize("label", [None, "", "  "])
def test_an_empty_label_is_refused_only_if_labels_are_needed(label):
    columns = {"label": pa.array([label, "a"]), "c": pa.array([[1], [2]])}
    batch, schema = pa.record_batch(columns), Schema((CATEGORY,), "y")
    assert inspect(batch, schema).first_problems == {0: ("y", "is empty; fill in the label or remove the row", None)}
    assert inspect(batch, schema, labelled=False).usable.all()


def test_only_the_first_problem_of_a_row_is_kept():
    marked = Problems(3)
    marked.mark(np.array([1]), "a", "first")
    marked.mark(np.array([0, 1]), "b", ["second", "third"])
    batch = SourceRows("f.csv", np.array([5, 6, 7]), pa.record_batch({}))
    assert marked.refusals(batch) == [Refusal("f.csv", 5, "b", "second"), Refusal("f.csv", 6, "a", "first")]
    assert str(marked.refusals(batch)[1]) == "f.csv: row 6: a first"


@pytest.fixture
def events():
    """Two groups: events in the rows 4, 9, 2 and 7, 1 of a file."""
    columns = {"c": pa.array([[1, None, 3], [4, None]]), "n": pa.array([[1.0, 2.0, 3.0], [math.inf, 1.0]])}
    return SourceRows("f.csv", np.array([4, 7]), pa.record_batch(columns), np.array([4, 9, 2, 7, 1]))


def test_a_refusal_names_the_row_of_the_bad_event_and_counts_its_group(events):
    refusals = inspect(events.columns, Schema((CATEGORY, NUMBER), group_by=("g",))).refusals(events)
    assert [(refusal.row, refusal.column, refusal.events) for refusal in refusals] == [(9, "c col", 3), (1, "c col", 2)]


@pytest.mark.parametrize("missing", ["mean", "last", "zero"])
def test_missing_values_are_accepted_if_the_field_allows_them(events, missing):
    category = Field("c", "category", ("c col",), "integer", options={"missing": "value"})
    number = Field("n", "number", ("n col",), width=1, options={"missing": missing})
    checked = inspect(events.columns, Schema((category, number), group_by=("g",)))
    assert (
        checked.usable.tolist() == [True, False] and checked.first_problems[1].column == "n col"
    )  # infinity is never good
    holes = pa.record_batch({"n": pa.array([[None, math.nan, 1.0]])})
    assert inspect(holes, Schema((number,))).usable.all() and not inspect(holes, Schema((NUMBER,))).usable.any()
