"""Rows share a key exactly if every field of every step is equal."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_files import write_lines

from seqclf.data.contents import sequence_keys
from seqclf.data.encoders import make_encoders
from seqclf.data.fields import Field
from seqclf.data.reading import read
from seqclf.data.schema import Schema
from seqclf.data.sources import Source

FIELDS = [
    Field("shop", "category", ("shop",)),
    Field("amount", "number", ("amount",), width=1),
    Field("when", "time", ("when",), width=1),
]
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, -0.0, 1.5]), st.integers(0, 2)), min_size=1, max_size=4
)


def keys_of(rows, fields=FIELDS):
    encoders = make_encoders(fields)
    kinds = {"shop": pa.list_(pa.string()), "amount": pa.list_(pa.float64()), "when": pa.list_(pa.float64())}
    staged = {}
    for place, (name, kind) in enumerate(kinds.items()):
        column = pa.array([[step[place] for step in row] for row in rows], kind)
        staged[name] = encoders[name].stage(column)
    return sequence_keys(pa.record_batch(staged), encoders)


@given(st.lists(STEPS, min_size=1, max_size=12))
def test_equal_keys_mean_equal_steps(rows):
    """Times are compared from the first step on; 0.0 and -0.0 are the same number."""
    plain = [[(shop, abs(amount), when - row[0][2]) for shop, amount, when in row] for row in rows]
    keys = keys_of(rows)
    for one in range(len(rows)):
        for other in range(one):
            assert (keys[one] == keys[other]) == (plain[one] == plain[other])


def test_with_cycles_the_hour_counts():
    rows = [[("a", 1.0, 0)], [("a", 1.0, 3600)]]
    assert len(set(keys_of(rows))) == 1
    cyclic = [*FIELDS[:2], Field("when", "time", ("when",), width=1, options={"cycles": ["hour"]})]
    assert len(set(keys_of(rows, cyclic))) == 2


@pytest.mark.parametrize("seed", range(3))
def test_many_different_sequences_have_different_keys(seed):
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 6, 50_000)
    column = pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)), generator.integers(0, 12, lengths.sum()))
    encoders = make_encoders([Field("x", "category", ("x",), "integer")])
    keys = sequence_keys(pa.record_batch({"x": encoders["x"].stage(column)}), encoders)
    assert len(np.unique(keys)) == len({tuple(row) for row in column.to_pylist()})


def test_texts_are_compared_as_they_are_written():
    encoders = make_encoders([Field("text", "text", ("text",))])
    keys = sequence_keys(pa.record_batch({"text": ["Hi you", "hi you", "Hi you", "é"]}), encoders)
    assert keys[0] == keys[2] and len(set(keys.tolist())) == 3


def test_equal_steps_share_a_key_however_they_are_written(tmp_path):
    path = write_lines(tmp_path / "t.csv", ["x", '"[1, 2]"', '"[1,2.0]"', '" [1 ,2]"', '"[2, 1]"'])
    field = Field("x", "category", ("x",), "integer")
    (batch,) = read(Source(str(path), "data.train"), Schema((field,)))
    encoders = make_encoders([field])
    staged = pa.record_batch({"x": encoders["x"].stage(batch.columns.column("x"))})
    one, two, three, other = sequence_keys(staged, encoders).tolist()
    assert one == two == three != other
