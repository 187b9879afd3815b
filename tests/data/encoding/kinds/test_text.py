"""Tokenizers of every kind agree with the tokenizers library, and keep words with pretrained vectors."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_files import write
from tokenizers import Tokenizer, trainers

from seqclf.data.encoding.kinds.text import TextEncoder, untrained
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError

TEXTS = ["Win a FREE prize now", "are you home now", "free prize inside", "home at 5?"] * 5


def fitted(texts, **options):
    tokenizer = TextEncoder(Field("text", "text", ("text",), options=options))
    parts = [pa.record_batch({"text": tokenizer.stage(pa.array(part))}) for part in (texts[:3], texts[3:])]
    tokenizer.fit(lambda *names: iter(parts))
    return tokenizer


def ids_of(tokenizer, text):
    lengths, arrays = tokenizer.encode(pa.record_batch({"text": [text]}))
    assert lengths[0] == len(arrays["text"])
    return arrays["text"].tolist()


def test_every_byte_is_one_known_token():
    tokenizer = fitted(TEXTS, tokenizer="byte", lowercase=False)
    text = "日本 ☃ naïve\n\x07 now"
    ids = ids_of(tokenizer, text)
    assert len(ids) == len(text.encode()) and 0 not in ids and tokenizer.spec()["size"] == 257
    assert ids_of(tokenizer, "a")[0] != ids_of(tokenizer, "A")[0]
    np.testing.assert_array_equal(ids, [id for letter in text for id in ids_of(tokenizer, letter)])


@pytest.mark.parametrize("kind", ["word", "bpe", "character", "byte"])
def test_every_text_that_is_not_blank_has_a_token(kind):
    """Accepted texts therefore have a length of at least 1."""
    letters = pa.array([chr(code) for code in range(0x3100)])
    blank = pc.equal(pc.utf8_trim_whitespace(letters), "").to_numpy(zero_copy_only=False)
    lengths, _ = fitted(TEXTS, tokenizer=kind).encode(pa.record_batch({"text": letters}))
    assert (lengths[~blank] > 0).all()


@settings(max_examples=60)
@given(
    st.lists(st.text(st.sampled_from("aA bB.,é\u0301\u0130[UNK]\t\x1f\u2028あ☃"), min_size=1), min_size=1),
    st.sampled_from(["word", "character", "byte", "bpe"]),
    st.booleans(),
    st.integers(1, 3),
    st.none() | st.integers(1, 6),
)
def test_vocabulary_and_tokens_agree_with_the_tokenizers_library(texts, kind, lowercase, min_count, max_size):
    """The trainer of the library is the oracle. Staged and canonical texts give the same tokens."""
    tokenizer = TextEncoder(
        Field(
            "text",
            "text",
            ("text",),
            options={"tokenizer": kind, "lowercase": lowercase, "min_count": min_count} | ({"max_size": max_size}),
        )
    )
    batch = pa.record_batch({"text": pa.array(texts)})
    staged = pa.record_batch({"text": tokenizer.stage(batch.column("text"))})
    tokenizer.fit(lambda *names: iter([staged]))
    from_staged, from_text = tokenizer.encode_staged(staged), tokenizer.encode(batch)
    np.testing.assert_array_equal(from_staged.lengths, from_text.lengths)
    np.testing.assert_array_equal(from_staged.arrays["text"], from_text.arrays["text"])
    if kind in ("word", "character"):
        oracle = untrained(kind, lowercase)
        trainer = trainers.WordLevelTrainer(
            vocab_size=max_size or 2**31, min_frequency=min_count, special_tokens=["[UNK]"], show_progress=False
        )
        oracle.train_from_iterator(texts, trainer)
        assert tokenizer.tokenizer.get_vocab() == oracle.get_vocab()


@pytest.fixture
def vectors(tmp_path):
    """A fastText file with vectors of 4 numbers for three words, one of which is not in the training texts."""
    lines = ["3 4", "prize 1 0 0 0.5", "home 0 1 0 0", "zebra 0 0 1 0"]
    (tmp_path / "v.vec").write_text("\n".join(lines) + "\n")
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress("\n".join(lines[1:]).encode()))
    return tmp_path


@pytest.mark.parametrize("name", ["v.vec", "v.txt.gz"])
def test_words_with_a_vector_are_kept(vectors, name):
    tokenizer = fitted([*TEXTS, "prize"], vectors=str(vectors / name), min_count=7)
    vocabulary = tokenizer.tokenizer.get_vocab()
    assert set(vocabulary) == {"[UNK]", "free", "prize", "home", "now"}  # seen seven times or more, or with a vector
    assert tokenizer.vectors.shape == (5, 4) and tokenizer.spec()["vector_size"] == 4
    np.testing.assert_array_equal(tokenizer.vectors[vocabulary["prize"]], [1, 0, 0, 0.5])
    assert not tokenizer.vectors[vocabulary["now"]].any()


def test_vectors_are_stored_with_the_dataset(options, vectors):
    path = write(vectors / "t.csv", {"text": TEXTS, "y": ["a", "b"] * 10})
    fields = {"text": {"kind": "text", "vectors": str(vectors / "v.vec")}}
    first, reused = (prepare(options(train=path, label="y", fields=fields)) for _ in range(2))
    assert reused.reused
    np.testing.assert_array_equal(first.vectors()["text"], reused.vectors()["text"])
    (vectors / "v.vec").write_text("prize 9 9\n")
    changed = prepare(options(train=path, label="y", fields=fields))
    assert not changed.reused and changed.vectors()["text"].shape[1] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prize 1 2\nhome 1 2 3\n", r"v.vec: line 2: has 3 numbers where 2 are expected"),
        ("prize 1 x\n", r"v.vec: line 1: is not a word followed by numbers"),
        ("zebra 1 2\n", r"has no vector for any word of the training texts"),
    ],
)
def test_invalid_vector_files_are_refused(vectors, text, message):
    (vectors / "v.vec").write_text(text)
    with pytest.raises(InputError, match=message):
        fitted(TEXTS, vectors=str(vectors / "v.vec"))
    with pytest.raises(InputError, match=r"data.fields.text.vectors=nope.vec: no such file"):
        fitted(TEXTS, vectors="nope.vec")


@settings(max_examples=60)
@given(
    st.lists(st.text(min_size=1) | st.text(st.sampled_from("aA bB.é\u0301\u0130[UNK]▁あ☃"), min_size=1), min_size=1),
    st.sampled_from(["word", "character", "byte", "bpe"]),
    st.booleans(),
)
def test_a_tokenizer_of_a_stored_vocabulary_is_the_stored_one(texts, kind, lowercase):
    first = fitted(texts, tokenizer=kind, lowercase=lowercase, min_count=1)
    state = json.loads(json.dumps(first.state()))
    second = TextEncoder(first.field)
    second.restore(state)
    assert second.tokenizer.to_str() == first.tokenizer.to_str()
    stored = Tokenizer.from_str(json.dumps(state["tokenizer"])).encode_batch_fast(texts)
    assert [ids_of(second, text) for text in texts] == [encoding.ids for encoding in stored]


def test_the_subwords_of_pretrained_vectors_are_restored(vectors):
    (vectors / "sub.vec").write_text("▁home 1 2\n")
    first = fitted(TEXTS, tokenizer="bpe", vectors=str(vectors / "sub.vec"))
    second = TextEncoder(first.field)
    second.restore(first.state())
    assert second.tokenizer.to_str() == first.tokenizer.to_str()
