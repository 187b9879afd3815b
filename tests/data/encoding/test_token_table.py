"""Tables of tokens: readable times and numbers, and both ends of a long sequence."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.encoding.encoders import encode, fit_encoders, make_encoders
from seqclf.data.encoding.token_table import MAX_CELLS, MAX_TOKENS, MIN_TOKENS, token_table
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION


def table_of(fields, columns):
    encoders = make_encoders(fields)
    batch = pa.record_batch(columns)
    staged = pa.record_batch({name: encoder.stage(batch.column(name)) for name, encoder in encoders.items()})
    fit_encoders(encoders, lambda *names: iter([staged.select(list(names))]))
    return token_table(encoders, encode(encoders, batch, NO_TRUNCATION).sequences.fields)


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
