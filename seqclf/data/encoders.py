"""Steps of a field → numbers a model reads. Each encoder is fit on the training split and saved as JSON.

Id 0 of every vocabulary is the unknown value. Padding needs no id: padded steps are never read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from seqclf.data.rows import flatten
from seqclf.data.schema import Field

UNKNOWN = "[UNK]"
Batches = Callable[[], Iterator[pa.Array]]


class Encoder(Protocol):
    """`fit` reads columns of accepted rows.

    `encode` gives lengths (N,) int64 and steps (S,) int32 or (S, D) float32.
    """

    def fit(self, columns: Batches) -> None: ...
    def encode(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]: ...
    def spec(self) -> dict[str, Any]: ...
    def state(self) -> dict[str, Any]: ...


class Vocabulary:
    """Category values → ids, the most frequent first; values seen fewer than `min_count` times are unknown."""

    def __init__(self, field: Field, values: list[Any] | None = None):
        self.field = field
        self._hold(values or [])

    def _hold(self, values: list[Any]) -> None:
        kind = pa.int64() if self.field.values == "integer" else pa.string()
        self.values = pa.array(values, kind)

    def fit(self, columns: Batches) -> None:
        counts: Counter[Any] = Counter()
        for column in columns():
            for entry in pc.value_counts(flatten(column, self.field)[1]).to_pylist():
                counts[entry["values"]] += entry["counts"]
        least, most = self.field.options.get("min_count", 1), self.field.options.get("max_size")
        kept = sorted((value for value, count in counts.items() if count >= least), key=lambda v: (-counts[v], v))
        self._hold(kept[:most])

    def encode(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        lengths, steps = flatten(column, self.field)
        found = pc.fill_null(pc.index_in(steps, value_set=self.values), -1)
        return lengths, found.to_numpy(zero_copy_only=False).astype(np.int32) + 1

    def spec(self) -> dict[str, Any]:
        return {"name": self.field.name, "kind": "category", "size": len(self.values) + 1}

    def state(self) -> dict[str, Any]:
        return {"values": self.values.to_pylist()}

    @classmethod
    def load(cls, field: Field, state: dict[str, Any]) -> Vocabulary:
        return cls(field, state["values"])


class Scaler:
    """Numbers → zero mean and unit deviation per channel (`scale: standard`), or as they are (`scale: none`)."""

    def __init__(self, field: Field, mean: list[float] | None = None, deviation: list[float] | None = None):
        self.field = field
        self.mean = np.asarray(mean if mean is not None else np.zeros(field.width or 1))
        self.deviation = np.asarray(deviation if deviation is not None else np.ones(field.width or 1))

    def fit(self, columns: Batches) -> None:
        if self.field.options.get("scale", "standard") == "none":
            return
        # Chan's update: batches are merged by count, mean and squared deviations, so large offsets lose nothing.
        count, mean, squares = 0, np.zeros(self.field.width or 1), np.zeros(self.field.width or 1)
        for column in columns():
            steps = flatten(column, self.field)[1]
            if not len(steps):
                continue
            own = steps.mean(axis=0)
            shift, total = own - mean, count + len(steps)
            squares += ((steps - own) ** 2).sum(axis=0) + shift**2 * count * len(steps) / total
            mean += shift * len(steps) / total
            count = total
        deviation = np.sqrt(squares / max(1, count))
        self.mean, self.deviation = mean, np.where(deviation > 1e-12 * np.maximum(1, abs(mean)), deviation, 1.0)

    def encode(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        lengths, steps = flatten(column, self.field)
        return lengths, ((steps - self.mean) / self.deviation).astype(np.float32)

    def spec(self) -> dict[str, Any]:
        return {"name": self.field.name, "kind": "number", "width": self.field.width}

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def load(cls, field: Field, state: dict[str, Any]) -> Scaler:
        return cls(field, state["mean"], state["deviation"])


class Tokenizer:
    """Text → token ids, by a Hugging Face tokenizer trained on the training split.

    `tokenizer`: `word` (split at spaces and punctuation), `bpe` (subwords) or `character`.
    """

    def __init__(self, field: Field, tokenizer: tokenizers.Tokenizer | None = None):
        self.field = field
        self.tokenizer = tokenizer

    def fit(self, columns: Batches) -> None:
        options = {"tokenizer": "word", "lowercase": True, "min_count": 2, "max_size": 50_000, **self.field.options}
        self.tokenizer, trainer = _untrained(options)
        self.tokenizer.train_from_iterator((text for column in columns() for text in column.to_pylist()), trainer)

    def encode(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        assert self.tokenizer is not None
        encoded = [entry.ids for entry in self.tokenizer.encode_batch_fast(column.to_pylist())]
        lengths = np.fromiter((len(ids) for ids in encoded), np.int64, len(encoded))
        steps = np.fromiter(chain.from_iterable(encoded), np.int32, int(lengths.sum()))
        return lengths, steps

    def spec(self) -> dict[str, Any]:
        assert self.tokenizer is not None
        return {"name": self.field.name, "kind": "category", "size": self.tokenizer.get_vocab_size()}

    def state(self) -> dict[str, Any]:
        assert self.tokenizer is not None
        return {"tokenizer": json.loads(self.tokenizer.to_str())}

    @classmethod
    def load(cls, field: Field, state: dict[str, Any]) -> Tokenizer:
        return cls(field, tokenizers.Tokenizer.from_str(json.dumps(state["tokenizer"])))


def _untrained(options: dict[str, Any]) -> tuple[tokenizers.Tokenizer, Any]:
    limits = {
        "vocab_size": options["max_size"],
        "min_frequency": options["min_count"],
        "special_tokens": [UNKNOWN],
        "show_progress": False,
    }
    if options["tokenizer"] == "word":
        tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordLevelTrainer(**limits)
    elif options["tokenizer"] == "bpe":
        tokenizer = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.BpeTrainer(**limits)
    else:
        tokenizer = tokenizers.Tokenizer(models.WordLevel(unk_token=UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        trainer = trainers.WordLevelTrainer(**limits)
    steps = [normalizers.NFC(), normalizers.Lowercase()] if options["lowercase"] else [normalizers.NFC()]
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer, trainer


KINDS: dict[str, type[Vocabulary] | type[Scaler] | type[Tokenizer]] = {
    "category": Vocabulary,
    "number": Scaler,
    "text": Tokenizer,
}


def fit_encoders(fields: Iterable[Field], column: Callable[[str], Batches]) -> dict[str, Encoder]:
    """One encoder per field; `column(name)` gives the training rows' columns of that field, again at each call."""
    encoders: dict[str, Encoder] = {}
    for field in fields:
        encoders[field.name] = KINDS[field.kind](field)
        encoders[field.name].fit(column(field.name))
    return encoders


def save_encoders(encoders: dict[str, Encoder], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, encoder in encoders.items():
        (folder / f"{name}.json").write_text(json.dumps(encoder.state(), ensure_ascii=False), encoding="utf-8")


def load_encoders(fields: Iterable[Field], states: Callable[[str], dict[str, Any]]) -> dict[str, Encoder]:
    return {field.name: KINDS[field.kind].load(field, states(field.name)) for field in fields}


def load_encoder_files(fields: Iterable[Field], folder: Path) -> dict[str, Encoder]:
    return load_encoders(fields, lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
