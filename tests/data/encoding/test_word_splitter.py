"""Words are split exactly as by the tokenizer of the bundle, for any text."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.encoding.kinds.text import TextEncoder, untrained
from seqclf.data.encoding.running_text import WordSplitter
from seqclf.data.schema.schema import Field

TEXTS = [
    "",
    " ",
    "It's *good*.",
    "İSTANBUL ΣΊΣΥΦΟΣ",
    "e\u0301 — «né»\u00a0\u2003x",
    "日本語 です。",
    "a\x00b\x1cc\td",
    "[UNK] x",
]


def splitter(lowercase):
    tokenizer = untrained("word", lowercase)
    return tokenizer, WordSplitter(tokenizer.normalizer, tokenizer.pre_tokenizer, lowercase)


def split_by_the_tokenizer(tokenizer, text):
    words = tokenizer.pre_tokenizer.pre_tokenize_str(tokenizer.normalizer.normalize_str(text))
    return [word for word, _ in words]


@pytest.mark.parametrize("lowercase", [True, False])
def test_each_text_has_the_words_of_the_tokenizer(lowercase):
    tokenizer, words = splitter(lowercase)

    @settings(deadline=None)
    @given(st.one_of(st.sampled_from(TEXTS), st.text(), st.text(st.characters(max_codepoint=127))))
    def check(text):
        assert words.words(text) == split_by_the_tokenizer(tokenizer, text)

    check()


def test_every_character_of_the_basic_planes_is_of_the_same_kind():
    tokenizer, words = splitter(True)
    for start in (*range(0, 0xD800, 0x800), 0xE000, 0xF800, 0x1F300):
        text = "".join(f"x{chr(code_point)}y " for code_point in range(start, start + 0x800))
        assert words.words(text) == split_by_the_tokenizer(tokenizer, text)


def encoded(encoder, texts):
    field = encoder.encode(pa.record_batch({"text": pa.array(texts)}))
    return field.lengths.tolist(), field.arrays["text"].tolist()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.sampled_from(TEXTS), st.text("ab.,\u0130é ")), min_size=1, max_size=5))
def test_ids_are_those_of_the_tokenizer(texts):
    encoder = TextEncoder(Field("text", "text", ("text",), {"min_count": 1}))
    staged = encoder.stage(pa.array(["a b . c", *texts[:2]]))
    encoder.fit(lambda *columns: iter([pa.record_batch({"text": staged})]))
    fast = encoded(encoder, texts)
    encoder.word_ids = None  # asks the tokenizer instead
    assert encoded(encoder, texts) == fast
