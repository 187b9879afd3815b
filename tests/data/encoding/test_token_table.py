"""Tables of tokens: readable times and numbers, and both ends of a long sequence."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.encoding.encoders import encode, fit_encoders, make_encoders
from seqclf.data.encoding.token_table import MAX_CELLS, MAX_DRAWN, MAX_TOKENS, MIN_TOKENS, describe_row, token_table
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION


def encoded(fields, columns):
    encoders = make_encoders(fields)
    batch = pa.record_batch(columns)
    staged = pa.record_batch({name: encoder.stage(batch.column(name)) for name, encoder in encoders.items()})
    fit_encoders(encoders, lambda *names: iter([staged.select(list(names))]))
    return encoders, encode(encoders, batch, NO_TRUNCATION).sequences.fields


def table_of(fields, columns):
    return token_table(*encoded(fields, columns))


def row_of(fields, columns):
    encoders, arrays = encoded(fields, columns)
    return describe_row(encoders, "1", arrays, {})


def test_times_are_durations_since_the_first_token_and_the_one_before():
    start = 1.7e9
    seconds = [start, start + 34320, start + 34320.25, start + 34260, start + 3e6]
    table = table_of([Field("at", "time", ("at",))], {"at": [seconds]})
    assert table.columns["at, since the first"] == ["0 s", "9 h 32 min", "9 h 32 min", "9 h 31 min", "34 d 17 h"]
    assert table.columns["at, since the previous"][:4] == ["0 s", "9 h 32 min", "250 ms", "-1 min"]


def test_channels_are_columns_by_name_without_values_that_were_missing():
    rows = [[[1.5, None, None], [None, None, 20000.0], [-2.25, None, 3.0]]]
    field = Field("v", "number", ("HR", "Temp", "pH"), width=3, options={"missing": "last"})
    table = table_of([field], {"v": pa.array(rows, pa.list_(pa.list_(pa.float64())))})
    assert table.columns == {"HR": ["1.5", "", "-2.25"], "pH": ["", "20000", "3"]}
    assert table.length == 3


def test_a_zero_is_a_zero_after_scaling():
    values = np.random.default_rng(0).normal(5, 2, 50)
    values[[3, 20]] = 0.0
    texts = table_of([Field("x", "number", ("x",), width=1)], {"x": [values[:40].tolist()]}).columns["x"]
    assert texts[3] == texts[20] == "0" and texts.count("0") == 2


@pytest.mark.parametrize(("length", "channels"), [(MAX_TOKENS, 1), (500, 1), (500, 30), (500, 200)])
def test_both_ends_of_a_long_sequence_are_in_the_table_which_stays_small(length, channels):
    columns = tuple(f"c{channel}" for channel in range(channels))
    values = np.random.default_rng(0).normal(size=(length, channels))
    cells = pa.array([values.tolist()], pa.list_(pa.list_(pa.float64()))) if channels > 1 else [values[:, 0].tolist()]
    table = table_of([Field("x", "number", columns, width=channels)], {"x": cells})
    count = len(table.positions)
    assert table.length == length and count == min(length, MAX_TOKENS, max(MIN_TOKENS, MAX_CELLS // channels))
    first, last = table.positions[: count // 2], table.positions[count // 2 :]
    assert first == list(range(len(first))) and last == list(range(length - len(last), length))
    decoded = np.array([list(map(float, texts)) for texts in table.columns.values()]).T
    np.testing.assert_allclose(decoded, values[table.positions], rtol=1e-3, atol=1e-3)


SHOP = Field("shop", "category", ("shop",))


def test_a_category_field_alone_is_a_strip_of_all_tokens():
    row = row_of([SHOP], {"shop": [["fuel", "cafe", "cafe"]]})
    assert row.form == "strip" and row.tokens.tolist() == [2, 1, 1]
    assert row.table.columns == {"shop": ["fuel", "cafe", "cafe"]} and row.table.positions == [0, 1, 2]


def test_a_long_strip_has_both_ends():
    row = row_of([SHOP], {"shop": [["fuel"] * 999]})
    assert row.table.positions == [*range(MAX_DRAWN // 2), *range(999 - MAX_DRAWN // 2, 999)]
    assert len(row.tokens) == row.table.length == 999


def test_a_number_field_alone_is_a_chart_in_the_units_of_the_data():
    field = Field("v", "number", ("HR", "Temp"), width=2, options={"missing": "last"})
    cells = pa.array([[[60.0, None], [80.0, 36.5], [None, 38.5]]], pa.list_(pa.list_(pa.float64())))
    row = row_of([field], {"v": cells})
    assert row.form == "chart" and list(row.table.columns) == ["HR", "Temp"]
    np.testing.assert_allclose(row.values, [[60, np.nan], [80, 36.5], [np.nan, 38.5]])
    np.testing.assert_allclose(row.tokens[:, 0], [-1, 1, 1], atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "columns", "form"),
    [
        ([SHOP, Field("x", "number", ("x",), width=1)], {"shop": [["a", "b"]], "x": [[1.0, 2.0]]}, "table"),
        ([Field("at", "time", ("at",))], {"at": [[1.0, 2.0]]}, "text"),
        ([Field("s", "set", ("s",))], {"s": pa.array([[["a"], ["b"]]])}, "text"),
        ([Field("t", "text", ("t",), options={"min_count": 1})], {"t": ["two words"]}, "text"),
    ],
)
def test_other_rows_are_tables_and_texts(fields, columns, form):
    row = row_of(fields, columns)
    assert row.form == form and row.tokens is None and row.table == table_of(fields, columns)
