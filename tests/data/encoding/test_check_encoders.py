"""Every kind keeps the promises of the interface."""

import pyarrow as pa
import pytest
from support.check_encoders import check_encoders

from seqclf.data.encoding.encoders import KINDS
from seqclf.data.schema.schema import Field

COLUMNS = {
    "category": pa.array([["a", "b"], ["a"], ["c", "c", "a"]]),
    "number": pa.array([[1.0, -5.0], [1e3], [0.0, 0.25, 7.0]]),
    "set": pa.array([[["a", "b"], []], [["b"]], [["c"], ["a"], ["b", "a", "a"]]]),
    "time": pa.array([[0.0, 60.0], [1e9], [5.0, 5.0, 86400.0]]),
    "text": pa.array(["the rain in spain", "rain", "the the THE spain"]),
    "tree": pa.array(["(2 (1 good) (3 film))", "(1 bad)", "(0 (1 not) (2 (2 so) (2 bad)))"]),
}
OPTIONS = [
    ("category", {}),
    ("category", {"hash_size": 5}),
    ("number", {}),
    ("number", {"scale": "robust", "log": True, "clip": 2.0}),
    ("number", {"scale": "sequence"}),
    ("number", {"scale": "none"}),
    ("set", {"combine": "max"}),
    ("set", {"hash_size": 3}),
    ("time", {"cycles": ["hour", "weekday"]}),
    ("text", {"min_count": 1}),
    ("text", {"tokenizer": "bpe", "min_count": 1, "max_size": 40}),
    ("text", {"tokenizer": "byte"}),
    ("tree", {"tags": "tokens"}),
]


def test_the_columns_are_of_every_kind():
    assert set(COLUMNS) == set(KINDS) == {kind for kind, _ in OPTIONS}


@pytest.mark.parametrize(("kind", "options"), OPTIONS)
def test_rows_are_encoded_the_same_in_every_way(kind, options):
    width = 1 if kind in ("number", "time") else None
    check_encoders([Field("x", kind, ("x",), width=width, options=options)], pa.record_batch({"x": COLUMNS[kind]}))


def test_numbers_beside_a_time_are_checked_together():
    fields = [
        Field("amount", "number", ("amount",), width=1, options={"missing": "last", "since": "at"}),
        Field("shop", "category", ("shop",)),
        Field("at", "time", ("at",), width=1),
    ]
    amounts = pa.array([[1.0, None], [1e3], [0.0, None, 7.0]])
    check_encoders(fields, pa.record_batch({"amount": amounts, "shop": COLUMNS["category"], "at": COLUMNS["time"]}))
