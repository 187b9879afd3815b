"""Encoders agree with plain loops and numpy, and a restored encoder with the saved one."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.encoding.encoders import (
    encode,
    fit_encoders,
    load_encoder_files,
    load_encoders,
    make_encoders,
    save_encoders,
)
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION

CATEGORIES = st.lists(st.lists(st.sampled_from("abcdeé "), min_size=1, max_size=6), min_size=1, max_size=12)
WORDS = ["The cat sat.", "the dog sat", "a cat, a dog!", "été"]


class Fitted:
    """One encoder, fit on columns of accepted rows."""

    def __init__(self, field, *columns):
        self.encoders = make_encoders([field])
        self.encoder = self.encoders["x"]
        staged = [pa.record_batch({"x": self.encoder.stage(column)}) for column in columns if len(column)]
        fit_encoders(self.encoders, lambda *names: iter(staged))

    def encode(self, column):
        return encoded(self.encoders, column)


def encoded(encoders, column):
    """Lengths and tokens of the field."""
    sequences = encode(encoders, pa.record_batch({"x": column}), NO_TRUNCATION).sequences
    return sequences.lengths, sequences.fields["x"]


@given(CATEGORIES, CATEGORIES, st.integers(1, 3), st.integers(1, 5))
def test_vocabulary_ranks_training_values_by_count(seen, new, min_count, max_size):
    field = Field("x", "category", ("x",), options={"min_count": min_count, "max_size": max_size})
    half = len(seen) // 2
    vocabulary = Fitted(
        field, pa.array(seen[:half], pa.list_(pa.string())), pa.array(seen[half:], pa.list_(pa.string()))
    )
    counts = Counter(value for row in seen for value in row)
    values = sorted((value for value in counts if counts[value] >= min_count), key=lambda v: (-counts[v], v))[:max_size]
    ids = {value: position + 1 for position, value in enumerate(values)}
    lengths, tokens = vocabulary.encode(pa.array(new))
    assert lengths.tolist() == [len(row) for row in new]
    assert tokens.tolist() == [ids.get(value, 0) for row in new for value in row] and tokens.dtype == np.int32
    assert vocabulary.encoder.spec() == {"name": "x", "kind": "category", "size": len(values) + 1}


def test_integer_categories_keep_all_digits():
    large = [2**53, 2**53 + 1, 2**63 - 1]
    vocabulary = Fitted(Field("x", "category", ("x",), "integer"), pa.array([large]))
    assert vocabulary.encode(pa.array([large]))[1].tolist() == [1, 2, 3]


@given(
    st.lists(
        st.lists(st.tuples(st.floats(-900, 900), st.floats(-1, 1)), min_size=1, max_size=5), min_size=1, max_size=9
    ),
    st.integers(1, 9),
    st.sampled_from([0.0, 1e6]),
)
def test_scaler_agrees_with_numpy_for_every_batch_size(rows, size, offset):
    rows = [[[x + offset, y] for x, y in row] for row in rows]
    kind = pa.list_(pa.list_(pa.float64()))
    batches = [pa.array(rows[start : start + size], kind) for start in range(0, len(rows), size)]
    scaler = Fitted(Field("x", "number", ("x",), width=2), *batches)
    tokens = np.array([token for row in rows for token in row])
    np.testing.assert_allclose(scaler.encoder.scales.mean[0], tokens.mean(0), rtol=1e-9, atol=1e-9)
    spread = tokens.std(0)
    expected = np.where(spread > 1e-9 * np.maximum(1, abs(tokens.mean(0))), spread, scaler.encoder.scales.deviation[0])
    np.testing.assert_allclose(scaler.encoder.scales.deviation[0], expected, rtol=1e-6, atol=1e-9)
    lengths, scaled = scaler.encode(pa.array(rows, kind))
    assert scaled.dtype == np.float32 and scaled.shape == (lengths.sum(), 2)
    np.testing.assert_allclose(
        scaled, (tokens - scaler.encoder.scales.mean[0]) / scaler.encoder.scales.deviation[0], rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(
    ("tokenizer", "expected"), [("word", ["a", "cat", "!"]), ("character", ["a", " ", "c", "a", "t", "!"])]
)
def test_tokenizers_split_text(tokenizer, expected):
    field = Field("x", "text", ("x",), options={"tokenizer": tokenizer, "min_count": 1})
    encoder = Fitted(field, pa.array(WORDS))
    ids = encoder.encoder.tokenizer.get_vocab()
    lengths, tokens = encoder.encode(pa.array(["A Cat!", ""]))
    assert tokens.tolist() == [ids[token] for token in expected] and lengths.tolist() == [len(expected), 0]


def test_rare_and_unseen_words_are_unknown():
    encoder = Fitted(Field("x", "text", ("x",)), pa.array(WORDS))
    assert encoder.encode(pa.array(["été zebra"]))[1].tolist() == [0, 0]
    assert encoder.encode(pa.array(["cat"]))[1].tolist() != [0]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (Field("x", "category", ("x",)), pa.array([["é", "b"], ["b"]])),
        (Field("x", "category", ("x",), "integer"), pa.array([[5, 7], [7]])),
        (Field("x", "number", ("x",), width=1), pa.array([[0.1, 1 / 3], [7.0]])),
        (Field("x", "text", ("x",), options={"tokenizer": "bpe", "max_size": 30}), pa.array(WORDS)),
    ],
)
def test_a_loaded_encoder_encodes_like_the_saved_one(field, column, tmp_path):
    first = Fitted(field, column)
    save_encoders(first.encoders, tmp_path / "encoders")
    plain = json.loads(json.dumps(first.encoder.state()))
    for loaded in (load_encoder_files([field], tmp_path / "encoders"), load_encoders([field], lambda name: plain)):
        assert loaded["x"].spec() == first.encoder.spec()
        for restored, saved in zip(encoded(loaded, column), first.encode(column), strict=True):
            np.testing.assert_array_equal(restored, saved)


@pytest.mark.parametrize("kind", ["word", "bpe", "character", "byte"])
def test_every_text_that_is_not_blank_has_a_token(kind):
    """Accepted texts therefore have a length of at least 1."""
    tokenizer = Fitted(Field("x", "text", ("x",), options={"tokenizer": kind}), pa.array(["hello world"]))
    letters = pa.array([chr(code) for code in range(0x3100)])
    blank = pc.equal(pc.utf8_trim_whitespace(letters), "").to_numpy(zero_copy_only=False)
    assert (tokenizer.encode(letters)[0][~blank] > 0).all()
