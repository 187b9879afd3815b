"""The field kinds by name, and functions that make, fit, save and load the encoders of all fields of a dataset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.field_encoder import EncodedField, EncoderState, FieldEncoder, ReadColumns
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.kinds.set import SetEncoder
from seqclf.data.encoding.kinds.text import TextEncoder
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.encoding.kinds.tree import TreeEncoder
from seqclf.data.field_spec import PARENTS, FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, ORIGINAL_LENGTH, Truncation
from seqclf.errors import InputError
from seqclf.settings.typed_text import did_you_mean
from seqclf.system.state_validation import error_context, read_json, require

KINDS: Mapping[str, type[FieldEncoder]] = MappingProxyType(
    {
        "category": CategoryEncoder,
        "number": NumberEncoder,
        "set": SetEncoder,
        "text": TextEncoder,
        "time": TimeEncoder,
        "tree": TreeEncoder,
    }
)


def encoder_class(kind: object, key: str = "kind") -> type[FieldEncoder]:
    """Return the encoder class of a field kind. Raises InputError if the kind is unknown. The error contains `key`.

    >>> encoder_class("category").__name__
    'CategoryEncoder'
    """
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(str(kind), list(KINDS))
        known = f"it must be one of {', '.join(KINDS)}"
        raise InputError(key, f"kind '{kind}' is unknown", f"{hint + ' ' if hint else ''}{known}")
    return KINDS[kind]


def make_encoder(field: Field, truncation: Truncation = NO_TRUNCATION) -> FieldEncoder:
    """Return an encoder of a field, which is not fit yet (see `FieldEncoder`)."""
    return encoder_class(field.kind, f"field {field.name}")(field, truncation)


FIT_THREADS = 2  # numpy and tokenizers release the GIL; each thread needs memory for one record batch


class EncodedRows(NamedTuple):
    """N encoded rows. `original_lengths`: (N,) int64 number of tokens of each row before truncation."""

    sequences: Ragged
    original_lengths: np.ndarray


def make_encoders(fields: Iterable[Field], truncation: Truncation = NO_TRUNCATION) -> dict[str, FieldEncoder]:
    """Return one encoder per field, not fit yet. Only `fit` uses `truncation`, the limit of the sequence length."""
    return {field.name: make_encoder(field, truncation) for field in fields}


def tokens_of(encoders: Mapping[str, FieldEncoder]) -> dict[str, FieldEncoder]:
    """Return the encoders of the fields that give each token a value."""
    return {name: encoder for name, encoder in encoders.items() if not encoder.field.static}


def static_of(encoders: Mapping[str, FieldEncoder]) -> dict[str, FieldEncoder]:
    """Return the encoders of the static fields. They encode a list of one value per sequence."""
    return {name: encoder for name, encoder in encoders.items() if encoder.field.static}


def fit_encoders(encoders: Mapping[str, FieldEncoder], read: ReadColumns) -> None:
    """Fit the encoders on staged training rows, two encoders at a time. `read`: see `ReadColumns`."""
    with ThreadPoolExecutor(FIT_THREADS) as pool:
        list(pool.map(lambda encoder: encoder.fit(read), encoders.values()))  # list() raises the errors of the threads


def encode(encoders: Mapping[str, FieldEncoder], record_batch: pa.RecordBatch, truncation: Truncation) -> EncodedRows:
    """Truncate and encode canonical columns. A row has the length 0 if its text has no known token."""
    record_batch = truncation.cut_lists(record_batch, tokens_of(encoders))
    encoded = {name: encoder.encode(record_batch) for name, encoder in encoders.items()}
    return _joined(record_batch, encoders, encoded, truncation)


def encode_staged(
    encoders: Mapping[str, FieldEncoder], record_batch: pa.RecordBatch, truncation: Truncation
) -> EncodedRows:
    """Encode staged columns. Lists in staged columns are already truncated."""
    encoded = {name: encoder.encode_staged(record_batch) for name, encoder in encoders.items()}
    return _joined(record_batch, encoders, encoded, truncation)


def _joined(
    record_batch: pa.RecordBatch,
    encoders: Mapping[str, FieldEncoder],
    encoded: Mapping[str, EncodedField],
    truncation: Truncation,
) -> EncodedRows:
    """Join the encoded fields of a record batch, and truncate text fields. All fields must have the same lengths."""
    fields = [encoded[name] for name in tokens_of(encoders)]
    lengths = fields[-1].lengths
    arrays = {name: array for field in fields for name, array in field.arrays.items()}
    static = {name: encoded[name].arrays[name] for name in static_of(encoders)}
    original_lengths = lengths
    if ORIGINAL_LENGTH in record_batch.schema.names:
        original_lengths = record_batch.column(ORIGINAL_LENGTH).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets, tokens, _ = truncation.cut_tokens(lengths, arrays)
    return EncodedRows(Ragged(offsets, tokens, static), original_lengths)


def token_texts(encoders: Mapping[str, FieldEncoder], fields: Mapping[str, np.ndarray]) -> list[str]:
    """Return a readable text for each token of a sequence. `fields`: dict array name → (T,) or (T, D)."""
    texts = (encoder.decode(fields) for encoder in tokens_of(encoders).values())
    return [" ".join(parts) for parts in zip(*texts, strict=True)]


def input_specs(encoders: Mapping[str, FieldEncoder], classes: Sequence[str]) -> list[FieldSpec]:
    """Return one spec per input of a model: each field, and the parents of a tree. `classes`: class labels."""
    specs: list[FieldSpec] = []
    for encoder in encoders.values():
        spec = encoder.spec()
        if encoder.field.static:
            spec["static"] = True  # type: ignore[typeddict-unknown-key]
        specs.append(spec)
        if encoder.tags is not None:
            class_of = {label: number for number, label in enumerate(classes)}
            node_classes = [class_of.get(tag, -1) for tag in encoder.tags]
            specs.append({"name": PARENTS, "kind": "parents", "node_classes": node_classes})
    return specs


def save_encoders(encoders: Mapping[str, FieldEncoder], folder: Path) -> None:
    """Write the state of each encoder to FIELD.json in a new folder, and pretrained vectors to FIELD.npy."""
    folder.mkdir(parents=True)
    for name, encoder in encoders.items():
        (folder / f"{name}.json").write_text(json.dumps(encoder.state(), ensure_ascii=False), encoding="utf-8")
        if encoder.vectors is not None:
            np.save(folder / f"{name}.npy", encoder.vectors, allow_pickle=False)


def load_encoders(fields: Iterable[Field], states: Callable[[str], EncoderState]) -> dict[str, FieldEncoder]:
    """Return the encoders of `fields`. `states`: function from the name of a field to its stored state.

    Raises InputError with the name of the encoder if a state is not valid.
    """
    encoders = make_encoders(fields)
    for name, encoder in encoders.items():
        with error_context(f"encoder of {name}", "export or prepare it anew"):
            encoder.restore(states(name))
    return encoders


def take_encoders(encoders: Mapping[str, FieldEncoder], folder: Path) -> None:
    """Restore encoders from BUNDLE/encoders in place of `fit_encoders`. Raises InputError if one does not fit."""
    for name, encoder in encoders.items():
        with error_context(f"data.encoders={folder}", "name BUNDLE/encoders, of a bundle with the same fields"):
            try:
                state = read_json(folder / f"{name}.json")
            except OSError:
                raise InputError(None, f"has no encoder of the field {name}") from None
            require(state, dict)
            encoder.restore(state)


def load_encoder_files(fields: Iterable[Field], folder: Path) -> dict[str, FieldEncoder]:
    """Return the encoders, restored from the files that `save_encoders` wrote to `folder`."""
    encoders = load_encoders(fields, lambda name: read_json(folder / f"{name}.json"))
    for name, encoder in encoders.items():
        if (folder / f"{name}.npy").is_file():
            encoder.vectors = np.load(folder / f"{name}.npy", allow_pickle=False)
    return encoders
