"""Running text → tokens, by a Hugging Face tokenizer trained on the training split."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqclf.data.encoding.truncation import WHOLE
from seqclf.data.encoding.word_vectors import read_vectors
from seqclf.data.schema.fields import Field
from seqclf.data.splitting.hashing import CodeHashes, hash_bytes
from seqclf.errors import InputError
from seqclf.system.stored_state import SIZE, require

UNKNOWN = "[UNK]"
SPACE = "\u2581"  # what `Metaspace` writes for a space, and before a text that begins with none
MOST_SUBWORDS = 10_000_000  # the trainer reserves memory for all of them
Batches = Callable[..., Iterator[pa.RecordBatch]]


class Tokenizer:
    """Text → token ids.

    `tokenizer`: `word` (split at spaces and punctuation), `bpe` (subwords), `character` or `byte`. With `vectors`, a
    file of pretrained word vectors, every training word that has one is kept; `vectors`: (size, D) float32, rows
    without one zero.

    All but `bpe` split a text without having learned anything, so texts are staged as provisional codes of their
    tokens, cut like any list, and the vocabulary counts kept tokens only. What `bpe` makes of a text depends on the
    texts it is trained on: it is trained on the first (or last) `max_length` words of each, a superset of the tokens
    that are kept, as every word makes a token or more.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.truncation = WHOLE
        self.kind: str = field.option("tokenizer")
        self.splitter = untrained(self.kind, field.option("lowercase"))
        self.tokenizer: tokenizers.Tokenizer | None = None
        self.codes = _Codes()
        self.hashes = CodeHashes(self.codes)
        self.ids = np.zeros(0, np.int32)  # of each provisional code
        self.vectors: np.ndarray | None = None
        self.vector_size: int | None = None

    def _tokens(self, text: str) -> Iterable[str]:
        """The tokens of a text; of `bpe`, its words."""
        text = self.splitter.normalizer.normalize_str(text)
        if self.kind == "character":
            return text
        words = self.splitter.pre_tokenizer.pre_tokenize_str(text)
        return chain.from_iterable(word for word, _ in words) if self.kind == "byte" else [word for word, _ in words]

    def stage(self, column: pa.Array) -> pa.Array:
        """Texts → lists of provisional codes; of `bpe`, the texts."""
        if self.kind == "bpe":
            return column
        codes, ends = array("i"), [0]
        for text in column.to_pylist():
            codes.extend(map(self.codes.__getitem__, self._tokens(text)))
            ends.append(len(codes))
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), np.array(codes, np.int32))

    def token_keys(self, column: pa.Array) -> np.ndarray:
        if self.kind != "bpe":
            return self.hashes.of(pc.list_flatten(column).to_numpy(zero_copy_only=False))
        if not self.truncation.cuts:
            return hash_bytes(self._spaced(text).encode() for text in column.to_pylist())
        words = (self.truncation.words(list(self._tokens(text))) for text in column.to_pylist())
        return hash_bytes("".join(kept).encode() for kept in words)

    def _spaced(self, text: str) -> str:
        """The joined words of a text, of `bpe`, without splitting it into words, which takes four times as long."""
        text = self.splitter.normalizer.normalize_str(text).replace(" ", SPACE)
        return text if not text or text.startswith(SPACE) else SPACE + text

    def fit(self, batches: Batches) -> None:
        if self.kind == "bpe":
            self._fit_subwords(batches)
        else:
            self._fit_words(batches)

    def _fit_subwords(self, batches: Batches) -> None:
        def texts() -> Iterator[str]:
            for batch in batches(self.field.name):
                for text in batch.column(self.field.name).to_pylist():
                    # Normalizing the joined words again changes nothing.
                    yield "".join(self.truncation.words(list(self._tokens(text)))) if self.truncation.cuts else text

        lowercase, most = self.field.option("lowercase"), self.field.option("max_size")
        self.tokenizer = train_subwords(texts(), lowercase, self.field.option("min_count"), most)
        if self.field.option("vectors") is not None:
            self._keep_vectors(train_subwords(texts(), lowercase, 1, most).get_vocab())

    def _fit_words(self, batches: Batches) -> None:
        counts = np.zeros(len(self.codes), np.int64)
        for batch in batches(self.field.name):
            codes = pc.list_flatten(batch.column(self.field.name)).to_numpy(zero_copy_only=False)
            counts += np.bincount(codes, minlength=len(counts))
        tokens = list(self.codes)
        seen = sorted(np.flatnonzero(counts).tolist(), key=lambda code: (-counts[code], tokens[code]))
        most = (self.field.option("max_size") or 2**31) - 1  # the unknown token counts
        kept = [tokens[code] for code in seen if counts[code] >= self.field.option("min_count")][:most]
        self.tokenizer = untrained(self.kind, self.field.option("lowercase"))
        if self.kind != "byte":
            self._hold({token: place for place, token in enumerate([UNKNOWN, *kept])})
        if self.field.option("vectors") is not None:
            self._keep_vectors({tokens[code]: rank for rank, code in enumerate(seen[:most])})
        vocabulary = self.tokenizer.get_vocab()
        self.ids = np.array([vocabulary.get(token, 0) for token in tokens], np.int32)

    def _hold(self, vocabulary: dict[str, int]) -> None:
        assert self.tokenizer is not None
        self.tokenizer.model = models.WordLevel(vocabulary, unk_token=UNKNOWN)

    def _keep_vectors(self, every: Mapping[str, int]) -> None:
        """Add the words of training that have a vector. `every`: word → rank."""
        assert self.tokenizer is not None
        wanted = {word: rank for word, rank in every.items() if word != UNKNOWN}
        words, vectors = read_vectors(self.field.option("vectors"), wanted, f"data.fields.{self.field.name}.vectors")
        kept = self.tokenizer.get_vocab()
        for word in sorted(set(words) - set(kept), key=lambda word: every[word]):
            kept[word] = len(kept)
        self._hold(kept)
        self.vectors = np.zeros((len(kept), vectors.shape[1]), np.float32)
        self.vectors[[kept[word] for word in words]] = vectors
        self.vector_size = vectors.shape[1]

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        assert self.tokenizer is not None
        column = batch.column(self.field.name)
        if staged and self.kind != "bpe":
            lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
            codes = pc.list_flatten(column).to_numpy(zero_copy_only=False)
            return lengths, {self.field.name: self.ids[codes]}
        encoded = [entry.ids for entry in self.tokenizer.encode_batch_fast(column.to_pylist())]
        lengths = np.fromiter((len(ids) for ids in encoded), np.int64, len(encoded))
        return lengths, {
            self.field.name: np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())),
        }

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        assert self.tokenizer is not None
        spelled = (str(self.tokenizer.id_to_token(place)) for place in fields[self.field.name].tolist())
        return ["?" if token == UNKNOWN else token for token in spelled]

    def spec(self) -> dict[str, Any]:
        size = self.tokenizer.get_vocab_size() if self.tokenizer is not None else 0
        spec = {"name": self.field.name, "kind": "category", "size": size}
        return spec if self.vector_size is None else {**spec, "vector_size": self.vector_size}

    def state(self) -> dict[str, Any]:
        assert self.tokenizer is not None
        return {"tokenizer": json.loads(self.tokenizer.to_str()), "vector_size": self.vector_size}

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"tokenizer": dict, "vector_size": (SIZE, None)})
        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state["tokenizer"]))
            self.tokenizer.encode_batch_fast(["\N{SNOWMAN} never seen"])  # it needs an unknown token for that
        except Exception as error:  # the library raises nothing more exact
            raise InputError(f"tokenizer cannot be read ({str(error).splitlines()[0]})") from None
        self.vector_size = state["vector_size"]


class _Codes(dict[str, int]):
    """Token → provisional code, which grows with every token that is new."""

    def __missing__(self, token: str) -> int:
        self[token] = code = len(self)
        return code


def untrained(kind: str, lowercase: bool) -> tokenizers.Tokenizer:
    """A tokenizer that splits texts but, unless of bytes, knows no token."""
    if kind == "byte":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = tokenizers.Tokenizer(models.BPE({token: place for place, token in enumerate([UNKNOWN, *alphabet])}, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif kind == "bpe":
        made = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        made = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        made.pre_tokenizer = (
            pre_tokenizers.BertPreTokenizer()
            if kind == "word"
            else pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        )
    steps = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    made.normalizer = normalizers.Sequence(steps)
    return made


def train_subwords(texts: Iterator[str], lowercase: bool, min_count: int, max_size: int | None) -> tokenizers.Tokenizer:
    """Learn the merges of byte pair encoding."""
    tokenizer = untrained("bpe", lowercase)
    trainer = trainers.BpeTrainer(
        vocab_size=max_size or MOST_SUBWORDS,
        min_frequency=min_count,
        special_tokens=[UNKNOWN],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
