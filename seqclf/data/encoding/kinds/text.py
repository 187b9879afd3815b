"""Text fields: a Hugging Face tokenizer splits each text into words, subwords, characters or bytes."""

from __future__ import annotations

import gzip
import json
from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqclf.data.encoding.field_encoder import EncodedField, EncoderState, ReadColumns
from seqclf.data.encoding.running_text import MAX_CHARACTERS, RunningTextEncoder, WordSplitter
from seqclf.data.encoding.vocabulary import Vocabulary, is_unicode
from seqclf.data.field_spec import CategorySpec
from seqclf.data.ragged import hash_bytes, list_lengths, list_values
from seqclf.data.schema.schema import Option, choice_option, count_option, flag_option, text_option
from seqclf.errors import InputError, first_line
from seqclf.system.state_validation import SIZE, require

UNKNOWN = "[UNK]"
MAX_LINE_BYTES = 2**24  # part of a line of word vectors that is read at a time
MAX_SUBWORDS = 10_000_000  # limit if `max_size` is null; the trainer reserves memory for this vocabulary size


class TextEncoder(RunningTextEncoder):
    """Encodes texts as token ids. Id 0 is the id of the unknown token.

    `tokenizer`: `word` (splits at spaces and punctuation), `bpe` (subwords), `character` or `byte`. The option
    `vectors` names a file of pretrained word vectors, and every training word in it is kept in the vocabulary. The
    attribute `vectors`, (size, D) float32, is zero for other words.

    Only `bpe` must be trained before it can split a text; it sees the first or last `max_length` words of each text,
    which hold all tokens that remain after truncation. Other tokenizers stage provisional codes, truncated like lists,
    so the vocabulary counts only tokens that remain.
    """

    options: ClassVar[Mapping[str, Option]] = {
        "tokenizer": choice_option("word", "word", "bpe", "character", "byte"),
        "lowercase": flag_option(True),
        "min_count": count_option(2),
        "max_size": count_option(50_000),
        "vectors": text_option(),
    }
    file_options = ("vectors",)

    def set_up(self) -> None:
        self.kind: str = self.option("tokenizer")
        self.splitter = untrained(self.kind, self.option("lowercase"))
        self.tokenizer: tokenizers.Tokenizer | None = None
        self.words: WordSplitter | None = None  # splits texts like `splitter`, but faster
        if self.kind == "word":
            splitter = self.splitter
            self.words = WordSplitter(splitter.normalizer, splitter.pre_tokenizer, self.option("lowercase"))
        self.word_ids: dict[str, int] | None = None  # dict word → id, set if the tokenizer only looks up words
        max_words = (self.option("max_size") or 2**31) - 1  # `max_size` also counts the unknown token
        self.vocabulary = Vocabulary(integers=False, min_count=self.option("min_count"), max_size=max_words)
        self.ids = np.zeros(0, np.int32)  # id of each provisional code
        self.vector_size: int | None = None

    def _tokens(self, text: str) -> Iterable[str]:
        """Split a text into tokens, or into words for `bpe`."""
        if self.words is not None:
            return self.words.words(text)
        text = self.splitter.normalizer.normalize_str(text)
        if self.kind == "character":
            return text
        words = self.splitter.pre_tokenizer.pre_tokenize_str(text)
        return chain.from_iterable(word for word, _ in words) if self.kind == "byte" else [word for word, _ in words]

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of provisional codes, or the texts themselves for `bpe`."""
        if self.kind == "bpe":
            return column
        codes, ends = array("i"), [0]  # an array needs 4 bytes per token, a list needs 8 bytes
        for text in column.to_pylist():
            codes.extend(map(self.vocabulary.codes.__getitem__, self._tokens(text)))
            ends.append(len(codes))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), np.array(codes, np.int32))

    def token_keys(self, column: pa.Array) -> np.ndarray:
        if self.kind != "bpe":
            return self.vocabulary.keys_of(list_values(column))
        return hash_bytes(self._kept_words(text).encode() for text in column.to_pylist())

    def _kept_words(self, text: str) -> str:
        return "".join(self.truncation.cut_words(list(self._tokens(text))))

    def fit(self, read: ReadColumns) -> None:
        if self.kind == "bpe":
            self._fit_subwords(read)
        else:
            self._fit_words(read)

    def _fit_subwords(self, read: ReadColumns) -> None:
        def texts() -> Iterator[str]:
            for record_batch in read(self.field.name):
                for text in record_batch.column(self.field.name).to_pylist():
                    # The trainer normalizes and splits the joined words again, which does not change the words.
                    yield self._kept_words(text) if self.truncation.cuts else text

        lowercase, max_size = self.option("lowercase"), self.option("max_size")
        self.tokenizer = train_subwords(texts(), lowercase, self.option("min_count"), max_size)
        if self.option("vectors") is not None:
            # Rare words with a pretrained vector are kept, so all words are needed.
            self._add_vectors(train_subwords(texts(), lowercase, 1, max_size).get_vocab())

    def _fit_words(self, read: ReadColumns) -> None:
        name = self.field.name
        by_count = self.vocabulary.fit(list_values(record_batch.column(name)) for record_batch in read(name))
        self.tokenizer = untrained(self.kind, self.option("lowercase"))
        if self.kind != "byte":  # the vocabulary of `byte` is already complete
            kept = self.vocabulary.values.to_pylist()
            self._set_vocabulary({token: id for id, token in enumerate([UNKNOWN, *kept])})
        if self.option("vectors") is not None:
            self._add_vectors({token: rank for rank, token in enumerate(by_count[: self.vocabulary.max_size])})
        self._set_word_ids(self.tokenizer.get_vocab())

    def _set_word_ids(self, vocabulary: dict[str, int]) -> None:
        self.word_ids = _KnownIds(vocabulary) if self.words is not None else None
        self.ids = np.array([vocabulary.get(token, 0) for token in self.vocabulary.codes], np.int32)

    def _set_vocabulary(self, vocabulary: dict[str, int]) -> None:
        assert self.tokenizer is not None
        self.tokenizer.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)

    def _add_vectors(self, ranks: Mapping[str, int]) -> None:
        """Read the vectors of training words, and add these words. `ranks`: dict word → rank by frequency."""
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
        return self._encoded(record_batch.column(self.field.name).to_pylist())

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        is_plain = {*map(type, cells)} == {str} and all(map(str.strip, cells)) and is_unicode(cells)
        return self._encoded(cells) if is_plain and max(map(len, cells)) <= MAX_CHARACTERS else None

    def _encoded(self, texts: Sequence[str]) -> EncodedField:
        assert self.tokenizer is not None
        if self.words is not None and self.word_ids is not None:
            known_ids, ends = array("i"), [0]
            for text in texts:
                known_ids.extend(map(self.word_ids.__getitem__, self.words.words(text)))
                ends.append(len(known_ids))
            return EncodedField(np.diff(np.array(ends, np.int64)), {self.field.name: np.array(known_ids, np.int32)})
        # `encode_batch_fast` does not compute character offsets, which are not needed here.
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
        require(state, {"tokenizer": {"model": {"type": str, "vocab": dict}}, "vector_size": (SIZE, None)})
        model = state["tokenizer"]["model"]
        vocabulary = dict(model["vocab"])
        ids = set(vocabulary.values()) if {*map(type, vocabulary.values())} == {int} else ()
        if UNKNOWN not in vocabulary or ids != {*range(len(vocabulary))}:
            raise InputError("tokenizer", f"must have ids below its number of tokens, each once, and one of {UNKNOWN}")
        try:
            self.tokenizer = self._rebuilt(vocabulary, model)
        except Exception as error:  # the tokenizers library raises a plain Exception for wrong merges
            raise InputError("tokenizer", f"cannot be read ({first_line(error)})") from None
        if not _is_part(state["tokenizer"], json.loads(self.tokenizer.to_str())):
            raise InputError("tokenizer", "has settings that are not those of the field")
        self.vector_size = state["vector_size"]
        self._set_word_ids(vocabulary)

    def _rebuilt(self, vocabulary: dict[str, int], model: Mapping[str, Any]) -> tokenizers.Tokenizer:
        """Return the tokenizer of the options and a stored vocabulary, without stored settings, which may be an attack.

        A normalizer may double a text again and again, a regular expression take hours, and a truncation drop tokens.
        """
        tokenizer = untrained(self.kind, self.option("lowercase"))
        if model["type"] == "WordLevel":
            tokenizer.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)
        elif self.kind == "bpe":
            tokenizer.model = models.BPE(vocabulary, [*map(tuple, model["merges"])], unk_token=UNKNOWN)
        if self.kind == "bpe":
            tokenizer.add_special_tokens([UNKNOWN])
        return tokenizer


def _is_part(stored: Any, rebuilt: Any) -> bool:
    """Return True if every stored setting is in the rebuilt ones, to which a later version of the library may add."""
    if isinstance(stored, dict) and isinstance(rebuilt, dict) and stored != rebuilt:
        return all(key in rebuilt and _is_part(setting, rebuilt[key]) for key, setting in stored.items())
    if isinstance(stored, list) and isinstance(rebuilt, list) and len(stored) == len(rebuilt):
        return stored == rebuilt or all(map(_is_part, stored, rebuilt))
    return stored == rebuilt


class _KnownIds(dict[str, int]):
    """Dict token → id. For a missing token, the dict returns the id of the unknown token."""

    def __missing__(self, token: str) -> int:
        return self[UNKNOWN]


def untrained(kind: str, lowercase: bool) -> tokenizers.Tokenizer:
    """Return a tokenizer that can split texts but has no vocabulary yet, except for `byte`."""
    if kind == "byte":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate([UNKNOWN, *alphabet])}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif kind == "bpe":
        tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        characters = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer() if kind == "word" else characters
    normalizer = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence(normalizer)
    return tokenizer


def train_subwords(texts: Iterator[str], lowercase: bool, min_count: int, max_size: int | None) -> tokenizers.Tokenizer:
    """Learn subwords from `texts` by byte pair encoding, and return the tokenizer."""
    tokenizer = untrained("bpe", lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=max_size or MAX_SUBWORDS, min_frequency=min_count, special_tokens=[UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def read_vectors(path: str, vocabulary: Container[str], key: str) -> tuple[list[str], np.ndarray]:
    """Read pretrained word vectors in the text format of fastText, whose first line is skipped, or of GloVe.

    Return the words that are in `vocabulary`, and their (words, D) float32 vectors. `key`: config key of the file.
    Raises InputError if the file is missing or malformed, or has no word of `vocabulary`.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{key}={path}", "no such file", "give a .vec or .txt file of word vectors")
    vectors: dict[str, np.ndarray] = {}
    size = previous = None
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        # A small compressed file may hold a line larger than memory.
        for number, line in enumerate(iter(partial(lines.readline, MAX_LINE_BYTES), b""), start=1):
            head, _, rest = line.rstrip().partition(b" ")
            if number == 1 and len(rest.split()) == 1:  # header of fastText: word count and dimension
                continue
            word = head.decode("utf-8", "replace")
            if word not in vocabulary or word == previous:  # skip unknown words and repeated lines
                continue
            try:
                vector = np.array(rest.split(), np.float32)
            except ValueError:
                raise InputError(f"{file}: line {number}", "is not a word followed by numbers", "fix it") from None
            size = size or len(vector)
            if len(vector) != size or not np.isfinite(vector).all():
                problem = f"has {len(vector)} numbers where {size} are expected"
                raise InputError(f"{file}: line {number}", problem, "fix it")
            vectors[word] = vector
            previous = word
    if not vectors:
        problem = "has no vector for any word of the training texts"
        raise InputError(f"{key}={path}", problem, "check file and lowercase")
    return list(vectors), np.stack(list(vectors.values()))
