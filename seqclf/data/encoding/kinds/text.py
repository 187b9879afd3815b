"""Text fields: words, subwords, characters or bytes, by a Hugging Face tokenizer."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import ClassVar

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqclf.data.encoding.encoder import NO_ENCODERS, EncodedField, EncoderState, FieldEncoder, ReadColumns
from seqclf.data.encoding.free_text_encoder import RunningTextEncoder
from seqclf.data.encoding.word_splitter import WordSplitter
from seqclf.data.encoding.word_vectors import read_vectors
from seqclf.data.field_spec import CategorySpec
from seqclf.data.hashing import CodeHashes, hash_bytes
from seqclf.data.ragged import list_lengths, list_values
from seqclf.data.schema.field_options import Option, choice_option, count_option, flag_option, text_option
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.errors import InputError, first_line
from seqclf.system.state_validation import SIZE, require

UNKNOWN = "[UNK]"
SPACE = "\u2581"  # `Metaspace` writes it for a space, and before a text that begins with none
MAX_SUBWORDS = 10_000_000  # the trainer reserves memory for all of them


class TextEncoder(RunningTextEncoder):
    """Text → token ids. Id 0 is the unknown token.

    `tokenizer`: `word` (split at spaces and punctuation), `bpe` (subwords), `character` or `byte`. With `vectors`, a
    file of pretrained word vectors, every training word that has a vector is kept. The attribute `vectors`, (size, D)
    float32, holds a row of zeros for words without one.

    All kinds but `bpe` split a text without training. Their texts are staged as provisional codes of the tokens and
    truncated like any list, so the vocabulary counts kept tokens only. The subwords of `bpe` depend on the texts it is
    trained on. It is trained on the first (or last) `max_length` words of each text, a superset of the kept tokens, as
    every word makes at least one token.
    """

    options: ClassVar[Mapping[str, Option]] = {
        "tokenizer": choice_option("word", "word", "bpe", "character", "byte"),
        "lowercase": flag_option(True),
        "min_count": count_option(2),
        "max_size": count_option(50_000),
        "vectors": text_option(),
    }
    file_options = ("vectors",)
    token_separator = " "

    def __init__(
        self,
        field: Field,
        others: Mapping[str, FieldEncoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.kind: str = self.option("tokenizer")
        self.splitter = untrained(self.kind, self.option("lowercase"))
        self.tokenizer: tokenizers.Tokenizer | None = None
        self.words: WordSplitter | None = None  # the same tokens, faster
        if self.kind == "word":
            splitter = self.splitter
            self.words = WordSplitter(splitter.normalizer, splitter.pre_tokenizer, self.option("lowercase"))
        self.word_ids: dict[str, int] | None = None  # of a tokenizer that does no more than to look up words
        self.codes = _ProvisionalCodes()
        self.hashes = CodeHashes(self.codes)
        self.ids = np.zeros(0, np.int32)  # provisional code → id
        self.vector_size: int | None = None

    def _tokens(self, text: str) -> Iterable[str]:
        """Split a text into its tokens, or for `bpe` into its words."""
        if self.words is not None:
            return self.words.words(text)
        text = self.splitter.normalizer.normalize_str(text)
        if self.kind == "character":
            return text
        words = self.splitter.pre_tokenizer.pre_tokenize_str(text)
        return chain.from_iterable(word for word, _ in words) if self.kind == "byte" else [word for word, _ in words]

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of provisional codes, or for `bpe` the texts."""
        if self.kind == "bpe":
            return column
        codes, ends = array("i"), [0]  # 4 bytes per token, where a list would take 8
        for text in column.to_pylist():
            codes.extend(map(self.codes.__getitem__, self._tokens(text)))
            ends.append(len(codes))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), np.array(codes, np.int32))

    def token_keys(self, column: pa.Array) -> np.ndarray:
        if self.kind != "bpe":
            return self.hashes.of(list_values(column))
        if not self.truncation.cuts:
            return hash_bytes(self._joined_words(text).encode() for text in column.to_pylist())
        return hash_bytes(self._kept_words(text).encode() for text in column.to_pylist())

    def _kept_words(self, text: str) -> str:
        """The joined words of a text after truncation."""
        return "".join(self.truncation.cut_words(list(self._tokens(text))))

    def _joined_words(self, text: str) -> str:
        """The joined words of a text. Splitting it into words and joining them takes four times as long."""
        text = self.splitter.normalizer.normalize_str(text).replace(" ", SPACE)
        return text if not text or text.startswith(SPACE) else SPACE + text

    def fit(self, read: ReadColumns) -> None:
        if self.kind == "bpe":
            self._fit_subwords(read)
        else:
            self._fit_words(read)

    def _fit_subwords(self, read: ReadColumns) -> None:
        def texts() -> Iterator[str]:
            for record_batch in read(self.field.name):
                for text in record_batch.column(self.field.name).to_pylist():
                    # The trainer normalizes and splits again, which leaves joined words as they are.
                    yield self._kept_words(text) if self.truncation.cuts else text

        lowercase, max_size = self.option("lowercase"), self.option("max_size")
        self.tokenizer = train_subwords(texts(), lowercase, self.option("min_count"), max_size)
        if self.option("vectors") is not None:
            # Rare words are kept if they have a vector, so all words of training are needed.
            self._add_vectors(train_subwords(texts(), lowercase, 1, max_size).get_vocab())

    def _fit_words(self, read: ReadColumns) -> None:
        counts = np.zeros(len(self.codes), np.int64)
        for record_batch in read(self.field.name):
            counts += np.bincount(list_values(record_batch.column(self.field.name)), minlength=len(counts))
        tokens = list(self.codes)
        # Ties are broken by spelling, so that ids do not depend on the order of rows.
        by_count = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (-counts[code], tokens[code]))
        max_words = (self.option("max_size") or 2**31) - 1  # max_size includes the unknown token
        min_count = self.option("min_count")
        kept = [tokens[code] for code in by_count if counts[code] >= min_count][:max_words]
        self.tokenizer = untrained(self.kind, self.option("lowercase"))
        if self.kind != "byte":  # whose vocabulary is complete
            self._set_vocabulary({token: id for id, token in enumerate([UNKNOWN, *kept])})
        if self.option("vectors") is not None:
            self._add_vectors({tokens[code]: rank for rank, code in enumerate(by_count[:max_words])})
        vocabulary = self._look_up_words()
        self.ids = np.array([vocabulary.get(token, 0) for token in tokens], np.int32)

    def _look_up_words(self) -> dict[str, int]:
        """Return the vocabulary, and use it alone where the tokenizer adds nothing to it, such as special tokens."""
        assert self.tokenizer is not None
        vocabulary = self.tokenizer.get_vocab()
        self.word_ids = None
        if self.words is not None and UNKNOWN in vocabulary:
            plain = untrained(self.kind, self.option("lowercase"))
            plain.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
            if json.loads(plain.to_str()) == json.loads(self.tokenizer.to_str()):
                self.word_ids = _KnownIds(vocabulary)
        return vocabulary

    def _set_vocabulary(self, vocabulary: dict[str, int]) -> None:
        assert self.tokenizer is not None
        self.tokenizer.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)

    def _add_vectors(self, ranks: Mapping[str, int]) -> None:
        """Read the pretrained vectors of the training words, and add those words to the vocabulary.

        `ranks`: word → rank in training, which orders the added words.
        """
        assert self.tokenizer is not None
        training_words = {word: rank for word, rank in ranks.items() if word != UNKNOWN}
        key = f"data.fields.{self.field.name}.vectors"
        words, vectors = read_vectors(self.option("vectors"), training_words, key)
        vocabulary = self.tokenizer.get_vocab()
        for word in sorted(set(words) - set(vocabulary), key=lambda word: ranks[word]):
            vocabulary[word] = len(vocabulary)
        self._set_vocabulary(vocabulary)
        self.vectors = np.zeros((len(vocabulary), vectors.shape[1]), np.float32)
        self.vectors[[vocabulary[word] for word in words]] = vectors
        self.vector_size = vectors.shape[1]

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        assert self.tokenizer is not None
        texts = record_batch.column(self.field.name).to_pylist()
        if self.words is not None and self.word_ids is not None:
            known_ids, ends = array("i"), [0]
            for text in texts:
                known_ids.extend(map(self.word_ids.__getitem__, self.words.words(text)))
                ends.append(len(known_ids))
            return EncodedField(np.diff(np.array(ends, np.int64)), {self.field.name: np.array(known_ids, np.int32)})
        # The fast variant leaves out character offsets, which nothing here needs.
        token_ids = [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts)]
        lengths = np.fromiter(map(len, token_ids), np.int64, len(token_ids))
        ids = np.fromiter(chain.from_iterable(token_ids), np.int32, int(lengths.sum()))
        return EncodedField(lengths, {self.field.name: ids})

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        if self.kind == "bpe":
            return self.encode(record_batch)
        column = record_batch.column(self.field.name)
        return EncodedField(list_lengths(column), {self.field.name: self.ids[list_values(column)]})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        assert self.tokenizer is not None
        tokens = (str(self.tokenizer.id_to_token(id)) for id in fields[self.field.name].tolist())
        return ["?" if token == UNKNOWN else token for token in tokens]

    def spec(self) -> CategorySpec:
        size = self.tokenizer.get_vocab_size() if self.tokenizer is not None else 0
        spec: CategorySpec = {"name": self.field.name, "kind": "category", "size": size}
        if self.vector_size is not None:
            spec["vector_size"] = self.vector_size
        return spec

    def state(self) -> EncoderState:
        assert self.tokenizer is not None
        return {"tokenizer": json.loads(self.tokenizer.to_str()), "vector_size": self.vector_size}

    def restore(self, state: EncoderState) -> None:
        require(state, {"tokenizer": dict, "vector_size": (SIZE, None)})
        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state["tokenizer"]))
            # A tokenizer without an unknown token loads, and fails at the first unseen word.
            self.tokenizer.encode_batch_fast(["\N{SNOWMAN} never seen"])
        except Exception as error:  # the library raises plain Exception
            raise InputError("tokenizer", f"cannot be read ({first_line(error)})") from None
        self.vector_size = state["vector_size"]
        self._look_up_words()


class _KnownIds(dict[str, int]):
    """Token → id. A token that is not known has the id of the unknown token."""

    def __missing__(self, token: str) -> int:
        return self[UNKNOWN]


class _ProvisionalCodes(dict[str, int]):
    """Token → provisional code. Looking up a new token adds it."""

    def __missing__(self, token: str) -> int:
        self[token] = code = len(self)
        return code


def untrained(kind: str, lowercase: bool) -> tokenizers.Tokenizer:
    """Return a tokenizer that splits texts, but knows no token. The vocabulary of `byte` is complete from the start."""
    if kind == "byte":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate([UNKNOWN, *alphabet])}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif kind == "bpe":
        tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = (
            pre_tokenizers.BertPreTokenizer()
            if kind == "word"
            else pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        )
    normalizer = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence(normalizer)
    return tokenizer


def train_subwords(texts: Iterator[str], lowercase: bool, min_count: int, max_size: int | None) -> tokenizers.Tokenizer:
    """Train byte pair encoding on texts."""
    tokenizer = untrained("bpe", lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=max_size or MAX_SUBWORDS,
        min_frequency=min_count,
        special_tokens=[UNKNOWN],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
