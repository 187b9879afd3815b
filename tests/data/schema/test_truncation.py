"""A truncated sequence is the same input as its kept tokens, in training, in comparison and in prediction."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.encoding.encoders import encode, make_encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import ORIGINAL_LENGTH, SIDES, Truncation

LIMIT = 5
GENERATOR = np.random.default_rng(0)
LENGTHS = GENERATOR.integers(1, 14, 60)
ROWS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=12)
TRUNCATIONS = st.builds(Truncation, st.none() | st.integers(1, 10), st.sampled_from(SIDES))


def part(row, side):
    return row[:LIMIT] if side == "keep_first" else row[-LIMIT:]


def kept_by(truncation, row):
    if not truncation.cuts:
        return row
    return row[: truncation.max_length] if truncation.side == "keep_first" else row[-truncation.max_length :]


@given(ROWS, TRUNCATIONS)
def test_lists_and_encoded_tokens_are_truncated_alike(rows, truncation):
    flat = np.array([token for row in rows for token in row], np.int32)
    batch = pa.record_batch({"a": rows, "b": [[[token, -token] for token in row] for row in rows], "c": rows})
    cut = truncation.cut_lists(batch, ["a", "b"])
    expected = [kept_by(truncation, row) for row in rows]
    assert cut.column("a").to_pylist() == expected and cut.column("c").to_pylist() == rows
    assert cut.column("b").to_pylist() == [[[token, -token] for token in row] for row in expected]
    lengths = np.array([len(row) for row in rows])
    assert (ORIGINAL_LENGTH in cut.schema.names) == truncation.cuts
    assert not truncation.cuts or cut.column(ORIGINAL_LENGTH).to_pylist() == lengths.tolist()
    ragged = truncation.cut_tokens(lengths, {"a": flat, "b": np.stack([flat, -flat], axis=1)})
    assert ragged.fields["a"].tolist() == [token for row in expected for token in row]
    assert ragged.fields["b"].tolist() == [[token, -token] for row in expected for token in row]
    assert ragged.lengths.tolist() == [len(row) for row in expected]


def tables(side, columns):
    """The same rows, long and truncated by hand."""
    label = {"label": ["a", "b"] * 30}
    return ({**columns, **label}, {name: [part(row, side) for row in rows] for name, rows in columns.items()} | label)


def assert_same(long, short):
    assert long.digest == short.digest
    for name, split in long.splits.items():
        for field, tokens in split.sequences.fields.items():
            np.testing.assert_array_equal(tokens, short.splits[name].sequences.fields[field])
    assert long.leaks == short.leaks


def rows_of(draw):
    return [draw(length) for length in LENGTHS.tolist()]


NUMBERS = rows_of(lambda length: (10.0 ** GENERATOR.integers(0, 8, length)).tolist())
GAPPED = rows_of(lambda length: [None if x < 0.3 else x for x in GENERATOR.random(length).tolist()])
TIMES = rows_of(lambda length: np.cumsum(GENERATOR.exponential(60, length)).tolist())
CODES = rows_of(lambda length: [f"c{code}" for code in GENERATOR.zipf(1.5, length).clip(0, 40)])
MISSING = {"kind": "number", "missing": "last"}


@pytest.mark.parametrize("side", ["keep_first", "keep_last"])
@pytest.mark.parametrize(
    ("columns", "fields"),
    [
        ({"c": CODES}, {"c": {"kind": "category", "max_size": 3, "min_count": 2}}),
        ({"x": NUMBERS}, {"x": "number"}),
        ({"x": NUMBERS}, {"x": {"kind": "number", "scale": "robust", "log": True}}),
        ({"x": GAPPED}, {"x": {**MISSING, "since": "tokens"}}),
        ({"x": GAPPED, "at": TIMES}, {"x": {**MISSING, "since": "at"}, "at": {"kind": "time", "cycles": ["hour"]}}),
    ],
)
def test_long_lists_give_the_dataset_of_their_kept_parts(options, tmp_path, side, columns, fields):
    paths = [write(tmp_path / f"{number}.parquet", table) for number, table in enumerate(tables(side, columns))]
    settings = {"label": "label", "fields": fields, "max_length": LIMIT, "truncate": side, "split": {"by": "distinct"}}
    assert_same(*(prepare(options(train=path, **settings)) for path in paths))


@pytest.mark.parametrize("side", ["keep_first", "keep_last"])
@pytest.mark.parametrize(("kind", "joint"), [("word", " "), ("character", ""), ("byte", ""), ("bpe", " ")])
def test_long_texts_give_the_dataset_of_their_kept_parts(options, tmp_path, side, kind, joint):
    """Words have one letter, as the merges of bpe are learned from words, not from tokens."""
    # As bytes, é is two tokens, of which truncation may keep one.
    alphabet = [*"abcdefghi"] if kind == "byte" else [*"abcdefghiéあ"]
    letters = rows_of(lambda length: list(GENERATOR.choice(alphabet, length)))
    long, short = tables(side, {"text": letters})
    tables_ = [{**table, "text": [joint.join(row) for row in table["text"]]} for table in (long, short)]
    paths = [write(tmp_path / f"{number}.parquet", table) for number, table in enumerate(tables_)]
    fields = {"text": {"kind": "text", "tokenizer": kind, "max_size": 8}}
    settings = {"label": "label", "fields": fields, "max_length": LIMIT, "truncate": side, "split": {"by": "distinct"}}
    assert_same(*(prepare(options(train=path, **settings)) for path in paths))


@pytest.mark.parametrize("side", ["keep_first", "keep_last"])
@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_truncated_words_are_in_no_vocabulary(options, tmp_path, side, kind):
    kept, removed = ["good", "bad", "fine", "poor", "odd"], ["zebra"] * 9
    rows = [" ".join(kept + removed if side == "keep_first" else removed + kept)] * 40
    path = write(tmp_path / "t.parquet", {"text": rows, "label": ["a", "b"] * 20})
    fields = {"text": {"kind": "text", "tokenizer": kind}}
    dataset = prepare(options(train=path, label="label", fields=fields, max_length=LIMIT, truncate=side))
    vocabulary = json.dumps(dataset.encoders["text"].state())
    assert "zebra" not in vocabulary and "fine" in vocabulary
    assert dataset.splits["train"].sequences.lengths.tolist() == [LIMIT] * 32
    if kind == "word":
        assert (
            dataset.report["train"].unknown_tokens == 0
            and dataset.splits["train"].original_lengths.tolist() == [14] * 32
        )


@pytest.mark.parametrize("side", ["keep_first", "keep_last"])
def test_prediction_encodes_a_long_sequence_like_its_kept_part(side):
    """Time gaps and fills begin with the first kept token."""
    fields = [
        Field("x", "number", ("x",), width=1, options={"missing": "last", "since": "at"}),
        Field("at", "time", ("at",), width=1),
        Field("c", "category", ("c",)),
    ]
    truncation = Truncation(LIMIT, side)
    encoders = make_encoders(fields)
    kinds = {"x": pa.list_(pa.float64()), "at": pa.list_(pa.float64()), "c": pa.list_(pa.string())}
    rows = {"x": GAPPED, "at": TIMES, "c": CODES}
    long = pa.record_batch({name: pa.array(rows[name], kind) for name, kind in kinds.items()})
    short = pa.record_batch(
        {name: pa.array([part(row, side) for row in rows[name]], kind) for name, kind in kinds.items()}
    )
    from_long, from_short = (encode(encoders, batch, truncation) for batch in (long, short))
    assert from_long.original_lengths.tolist() == LENGTHS.tolist() and from_long.sequences.lengths.max() == LIMIT
    for name, tokens in from_long.sequences.fields.items():
        np.testing.assert_array_equal(tokens, from_short.sequences.fields[name])
