"""Running text → tokens, by a Hugging Face tokenizer trained on the training split; trees of text → nodes."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqclf.data.fields import Field
from seqclf.data.trees import Tree, parse
from seqclf.errors import InputError

UNKNOWN = "[UNK]"
INNER = "[NODE]"  # the token of a tree's node that has none
Batches = Callable[..., Iterator[pa.RecordBatch]]


class Tokenizer:
    """Text → token ids.

    `tokenizer`: `word` (split at spaces and punctuation), `bpe` (subwords), `character` or `byte`. With `vectors`, a
    file of pretrained word vectors, every training word that has one is kept; `vectors`: (size, D) float32, rows
    without one zero.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.tokenizer: tokenizers.Tokenizer | None = None
        self.vectors: np.ndarray | None = None
        self.vector_size: int | None = None

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    def bits(self, column: pa.Array) -> np.ndarray:
        """(N,): of a text there is one number a row."""
        digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in column.to_pylist())
        return np.frombuffer(b"".join(digests), np.uint64)

    def fit(self, batches: Batches) -> None:
        def texts() -> Iterator[str]:
            return (text for batch in batches() for text in batch.column(self.field.name).to_pylist())

        options = {name: self.field.option(name) for name in ("tokenizer", "lowercase", "min_count", "max_size")}
        self.tokenizer = train_tokenizer(texts(), **options)
        path = self.field.option("vectors")
        if path is not None:
            every = train_tokenizer(texts(), **{**options, "min_count": 1}).get_vocab()
            words, found = read_vectors(path, every, f"data.fields.{self.field.name}.vectors")
            kept = self.tokenizer.get_vocab()
            for word in sorted(set(words) - set(kept), key=lambda word: every[word]):
                kept[word] = len(kept)
            self.tokenizer.model = models.WordLevel(kept, unk_token=UNKNOWN)
            self.vectors = np.zeros((len(kept), found.shape[1]), np.float32)
            self.vectors[[kept[word] for word in words]] = found
            self.vector_size = found.shape[1]

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        assert self.tokenizer is not None
        texts = batch.column(self.field.name).to_pylist()
        encoded = [entry.ids for entry in self.tokenizer.encode_batch_fast(texts)]
        lengths = np.fromiter((len(ids) for ids in encoded), np.int64, len(encoded))
        return lengths, {
            self.field.name: np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum())),
        }

    def spell(self, fields: Mapping[str, np.ndarray]) -> list[str]:
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
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state["tokenizer"]))
        self.vector_size = state["vector_size"]


def train_tokenizer(
    texts: Iterator[str], *, tokenizer: str, lowercase: bool, min_count: int, max_size: int | None
) -> tokenizers.Tokenizer:
    limits: dict[str, Any] = {"min_frequency": min_count, "special_tokens": [UNKNOWN], "show_progress": False}
    limits["vocab_size"] = max_size or 2**31
    steps = [normalizers.NFC(), normalizers.Lowercase()] if lowercase else [normalizers.NFC()]
    if tokenizer == "byte":
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        made = tokenizers.Tokenizer(models.BPE({token: place for place, token in enumerate([UNKNOWN, *alphabet])}, []))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    elif tokenizer == "bpe":
        made = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    else:
        made = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        made.pre_tokenizer = (
            pre_tokenizers.BertPreTokenizer()
            if tokenizer == "word"
            else pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        )
    made.normalizer = normalizers.Sequence(steps)
    if tokenizer != "byte":
        trainer = (trainers.BpeTrainer if tokenizer == "bpe" else trainers.WordLevelTrainer)(**limits)
        made.train_from_iterator(texts, trainer)
    return made


def read_vectors(path: str, wanted: Mapping[str, int], key: str) -> tuple[list[str], np.ndarray]:
    """The wanted words of a text file of word vectors (a word and its numbers a line; the line of counts with which
    fastText begins is skipped) and their vectors, (words, D) float32."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{key}={path}: no such file; give a .vec or .txt file of word vectors")
    words: list[str] = []
    rows: list[np.ndarray] = []
    size = None
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            head, _, rest = line.rstrip().partition(b" ")
            if number == 1 and len(rest.split()) == 1:
                continue
            word = head.decode("utf-8", "replace")
            if word not in wanted or word == UNKNOWN or (words and word == words[-1]):
                continue
            try:
                row = np.array(rest.split(), np.float32)
            except ValueError:
                raise InputError(f"{file}: line {number}: is no word followed by numbers; mend it") from None
            size = size or len(row)
            if len(row) != size or not np.isfinite(row).all():
                raise InputError(f"{file}: line {number}: has {len(row)} numbers where {size} are expected; mend it")
            words.append(word)
            rows.append(row)
    if not words:
        raise InputError(f"{key}={path}: has a vector of no word of the training texts; check file and lowercase")
    unique = dict(zip(words, rows, strict=True))
    return list(unique), np.stack(list(unique.values()))


class TreeTokenizer:
    """Bracketed text → the tokens of its nodes, children before parents, with `parents` and, where the tags are
    labels (`tags: labels`, as in treebanks), `node_labels`, or as tokens (`tags: tokens`, as in expressions).

    `parents`: (S,) int32 places within the sequence, -1 for the root; `node_labels`: (S,) int32 places among the sorted
    tags of training, -1 where a node has none of them.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.labelled = field.option("tags") == "labels"
        self.tokens: list[str] = []
        self.tags: list[str] = []

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    bits = Tokenizer.bits

    def _trees(self, batch: pa.RecordBatch) -> Iterator[tuple[Tree, list[str]]]:
        """Each tree and the token of each of its nodes."""
        for text in batch.column(self.field.name).to_pylist():
            tree = parse(text, self.labelled)
            given = tree.tokens if self.labelled else [a or b for a, b in zip(tree.tokens, tree.tags, strict=True)]
            yield tree, [self._spelled(token) or INNER for token in given]

    def _spelled(self, token: str) -> str:
        return token.lower() if self.field.option("lowercase") else token

    def fit(self, batches: Batches) -> None:
        counts: dict[str, int] = {}
        tags: set[str] = set()
        for batch in batches(self.field.name):
            for tree, tokens in self._trees(batch):
                for token in tokens:
                    counts[token] = counts.get(token, 0) + 1
                tags.update(tree.tags)
        kept = [token for token, count in counts.items() if count >= self.field.option("min_count")]
        self.tokens = sorted(kept, key=lambda token: (-counts[token], token))[: self.field.option("max_size")]
        self.tags = sorted(tags - {""}) if self.labelled else []

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        ids = {token: place for place, token in enumerate(self.tokens, start=1)}
        labels = {tag: place for place, tag in enumerate(self.tags)}
        lengths, nodes, parents, tags = [], [], [], []
        for tree, tokens in self._trees(batch):
            lengths.append(len(tokens))
            nodes += [ids.get(token, 0) for token in tokens]
            parents.append(tree.parents)
            tags += [labels.get(tag, -1) for tag in tree.tags]
        arrays = {
            self.field.name: np.array(nodes, np.int32),
            "parents": np.concatenate(parents or [np.empty(0, np.int32)]),
        }
        if self.labelled:
            arrays["node_labels"] = np.array(tags, np.int32)
        return np.array(lengths, np.int64), arrays

    def spell(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        return ["?" if place == 0 else self.tokens[place - 1] for place in fields[self.field.name].tolist()]

    def spec(self) -> dict[str, Any]:
        return {"name": self.field.name, "kind": "category", "size": len(self.tokens) + 1}

    def state(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "tags": self.tags}

    def restore(self, state: dict[str, Any]) -> None:
        self.tokens, self.tags = state["tokens"], state["tags"]
