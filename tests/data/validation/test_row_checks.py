"""Every bad row is found, with its reason, and no good row is refused: against a plain loop."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.reading.record_batches import Refusal, SourceRows
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema
from seqclf.data.validation.row_checks import Problems, flatten, inspect, too_long_reason

STEP = st.none() | st.floats(-5, 5) | st.sampled_from([math.nan, math.inf, -math.inf, 1e39])
VECTOR = st.none() | st.lists(STEP, max_size=3)
CATEGORY = Field("c", "category", ("c col",), "integer")
NUMBER = Field("n", "number", ("n col",), width=1)
VECTORS = Field("v", "number", ("v col",), width=2)


def problems(schema, **columns):
    return inspect(pa.record_batch(columns), schema)


def usable_number(value):
    return value is not None and math.isfinite(value) and abs(value) < 3.4e38


@given(st.lists(st.none() | st.lists(STEP, max_size=3), min_size=1, max_size=8))
def test_numbers_agree_with_a_plain_loop(rows):
    found = problems(Schema((NUMBER,)), n=pa.array(rows, pa.list_(pa.float64())))
    assert found.usable.tolist() == [bool(row) and all(map(usable_number, row)) for row in rows]


@given(st.lists(st.none() | st.lists(VECTOR, max_size=3), min_size=1, max_size=8))
def test_vectors_agree_with_a_plain_loop(rows):
    found = problems(Schema((VECTORS,)), v=pa.array(rows, pa.list_(pa.list_(pa.float64()))))

    def usable(row):
        return bool(row) and all(step is not None and len(step) == 2 and all(map(usable_number, step)) for step in row)

    assert found.usable.tolist() == [usable(row) for row in rows]
    assert sorted(found.found) == [row for row, good in enumerate(found.usable) if not good]


@given(st.lists(st.none() | st.lists(st.none() | st.integers(), max_size=3), min_size=1, max_size=8), st.data())
def test_fields_must_have_the_same_steps(rows, data):
    rows = [None if row is None else [None if step is None else step % 9 for step in row] for row in rows]
    numbers = data.draw(st.lists(st.lists(st.floats(0, 1), max_size=3), min_size=len(rows), max_size=len(rows)))
    both = Schema((CATEGORY, NUMBER))
    found = problems(both, c=pa.array(rows, pa.list_(pa.int64())), n=pa.array(numbers, pa.list_(pa.float64())))
    expected = [
        bool(row) and None not in row and len(row) == len(other) for row, other in zip(rows, numbers, strict=True)
    ]
    assert found.usable.tolist() == expected


@pytest.mark.parametrize(
    ("field", "kind", "row", "reason"),
    [
        (CATEGORY, pa.list_(pa.int64()), None, "is empty; a sequence needs at least one step"),
        (CATEGORY, pa.list_(pa.int64()), [], "has no steps; a sequence needs at least one"),
        (
            CATEGORY,
            pa.list_(pa.int64()),
            [1, None],
            "has an element that is missing or does not belong in a list of int",
        ),
        (
            NUMBER,
            pa.list_(pa.float64()),
            [1.0, math.nan],
            "has NaN, an infinite number, one beyond float32, or text that is none; replace it",
        ),
        (NUMBER, pa.list_(pa.float64()), [1e39], "has NaN, an infinite number, one beyond float32"),
        (
            VECTORS,
            pa.list_(pa.list_(pa.float64())),
            [[1.0, 2.0], [1.0]],
            "has a step of 1 values where the field has 2",
        ),
        (VECTORS, pa.list_(pa.list_(pa.float64())), [[1.0, None]], "has an element that is missing or no number"),
        (VECTORS, pa.list_(pa.float64()), [1.0], "has steps of 1 value where the field has 2"),
        (Field("t", "text", ("t col",)), pa.string(), " \t", "is empty; a sequence needs at least one step"),
        (Field("t", "text", ("t col",)), pa.string(), None, "is empty; a sequence needs at least one step"),
    ],
)
def test_reasons_name_the_column_and_what_is_wrong(field, kind, row, reason):
    found = problems(Schema((field,)), **{field.name: pa.array([row], kind)})
    column, text, _ = found.found[0]
    assert column == field.column and text.startswith(reason)


def test_text_that_is_no_list_is_shown():
    column = {"c": pa.array([None], pa.list_(pa.int64())), "raw c": pa.array(["hello you"])}
    found = problems(Schema((CATEGORY,)), **column)
    assert found.found[0][1].startswith("is not a list of integers: 'hello you'; write lists as [a, b], or name")


@pytest.mark.parametrize("label", [None, "", "  "])
def test_an_empty_label_is_refused_unless_labels_are_not_asked_for(label):
    columns = {"label": pa.array([label, "a"]), "c": pa.array([[1], [2]])}
    batch, schema = pa.record_batch(columns), Schema((CATEGORY,), "y")
    assert inspect(batch, schema).found == {0: ("y", "is empty; fill in the label or remove the row", None)}
    assert inspect(batch, schema, labelled=False).usable.all()


def test_only_the_first_problem_of_a_row_is_told():
    found = Problems(3)
    found.mark(np.array([1]), "a", "first")
    found.mark(np.array([0, 1]), "b", ["second", "third"])
    batch = SourceRows("f.csv", np.array([5, 6, 7]), pa.record_batch({}))
    assert found.refusals(batch) == [
        Refusal("f.csv", 5, "b", "second"),
        Refusal("f.csv", 6, "a", "first"),
    ]
    assert str(found.refusals(batch)[1]) == "f.csv: row 6: a first"


@pytest.fixture
def events():
    """Two groups: events in the rows 4, 9, 2 and 7, 1 of a file."""
    columns = {"c": pa.array([[1, None, 3], [4, None]]), "n": pa.array([[1.0, 2.0, 3.0], [math.inf, 1.0]])}
    return SourceRows("f.csv", np.array([4, 7]), pa.record_batch(columns), np.array([4, 9, 2, 7, 1]))


def test_a_bad_event_is_named_by_its_own_row_and_counts_its_group(events):
    refusals = inspect(events.columns, Schema((CATEGORY, NUMBER), group_by=("g",))).refusals(events)
    assert [(refusal.row, refusal.column, refusal.events) for refusal in refusals] == [(9, "c col", 3), (1, "c col", 2)]


@pytest.mark.parametrize("missing", ["mean", "last", "zero"])
def test_missing_values_are_good_where_they_may_be(events, missing):
    category = Field("c", "category", ("c col",), "integer", options={"missing": "value"})
    number = Field("n", "number", ("n col",), width=1, options={"missing": missing})
    found = inspect(events.columns, Schema((category, number), group_by=("g",)))
    assert found.usable.tolist() == [True, False] and found.found[1].column == "n col"  # infinity is never good
    holes = pa.record_batch({"n": pa.array([[None, math.nan, 1.0]])})
    assert inspect(holes, Schema((number,))).usable.all() and not inspect(holes, Schema((NUMBER,))).usable.any()


@given(st.lists(st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), min_size=1, max_size=4), min_size=1))
def test_flatten_puts_steps_end_to_end(rows):
    lengths, steps = flatten(pa.array(rows, pa.list_(pa.list_(pa.float64()))), VECTORS)
    assert lengths.tolist() == [len(row) for row in rows]
    assert steps.tolist() == [step for row in rows for step in row]
    sliced = flatten(pa.array([[[9.0, 9.0]], *rows], pa.list_(pa.list_(pa.float64()))).slice(1), VECTORS)
    np.testing.assert_array_equal(sliced[1], steps)


def test_the_remedies_of_a_long_sequence_are_named():
    text = too_long_reason(np.array([3, 9]), 5)
    assert text == (
        "has more than data.max_length=5 steps (the longest 9); "
        "set data.truncate=keep_first or keep_last, or raise data.max_length"
    )
