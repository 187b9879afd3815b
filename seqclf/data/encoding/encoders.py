"""The encoders of all fields of a dataset: make, fit, encode, decode, save and load.

Id 0 of a vocabulary is the unknown value. Padding needs no id, as padded tokens are never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoder import EncodedField, EncoderState, FieldEncoder, ReadColumns
from seqclf.data.encoding.registry import make_encoder
from seqclf.data.field_spec import PARENTS, FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, ORIGINAL_LENGTH, Truncation
from seqclf.system.state_validation import error_context

FIT_THREADS = 2  # numpy and tokenizers release the GIL; each thread holds a record batch in memory


class EncodedRows(NamedTuple):
    """N encoded rows, and `original_lengths`: (N,) int64 lengths before truncation."""

    sequences: Ragged
    original_lengths: np.ndarray


def make_encoders(fields: Iterable[Field], truncation: Truncation = NO_TRUNCATION) -> dict[str, FieldEncoder]:
    """Return an encoder for each field, in the order of the fields. They are not fit yet.

    `truncation` matters for fitting only. A loaded encoder does not need it.
    """
    encoders: dict[str, FieldEncoder] = {}
    for field in fields:
        # Each encoder gets the mapping itself, as it may depend on a field that comes later.
        encoders[field.name] = make_encoder(field, encoders, truncation)
    return encoders


def fit_encoders(encoders: Mapping[str, FieldEncoder], read: ReadColumns) -> None:
    """Fit each encoder on staged training rows, two at a time. `read`: see `ReadColumns`."""
    with ThreadPoolExecutor(FIT_THREADS) as pool:
        for after_others in (False, True):
            group = [encoder for encoder in encoders.values() if encoder.fit_after_others is after_others]
            list(pool.map(lambda encoder: encoder.fit(read), group))  # the list re-raises errors of the threads


def encode(encoders: Mapping[str, FieldEncoder], record_batch: pa.RecordBatch, truncation: Truncation) -> EncodedRows:
    """Truncate and encode canonical columns, as the reader yields them.

    A text may have no token that the tokenizer knows. Its length is then 0.
    """
    record_batch = truncation.cut_lists(record_batch, encoders)
    return _joined(record_batch, [encoder.encode(record_batch) for encoder in encoders.values()], truncation)


def removal_traces(
    encoders: Mapping[str, FieldEncoder], record_batch: pa.RecordBatch, truncation: Truncation
) -> dict[str, np.ndarray]:
    """Return the traces of the tokens that `encode` gives for the same columns (see `FieldEncoder.traces`)."""
    record_batch = truncation.cut_lists(record_batch, encoders)
    return {name: array for encoder in encoders.values() for name, array in encoder.traces(record_batch).items()}


def encode_staged(
    encoders: Mapping[str, FieldEncoder], record_batch: pa.RecordBatch, truncation: Truncation
) -> EncodedRows:
    """Encode staged columns, whose lists were truncated when they were written. See also `encode`."""
    return _joined(record_batch, [encoder.encode_staged(record_batch) for encoder in encoders.values()], truncation)


def _joined(record_batch: pa.RecordBatch, fields: list[EncodedField], truncation: Truncation) -> EncodedRows:
    """Join the fields of a record batch, whose lengths agree. Texts are truncated here, as tokens."""
    lengths = fields[-1].lengths
    arrays = {name: array for field in fields for name, array in field.arrays.items()}
    original_lengths = lengths
    if ORIGINAL_LENGTH in record_batch.schema.names:
        original_lengths = record_batch.column(ORIGINAL_LENGTH).to_numpy(zero_copy_only=False).astype(np.int64)
    return EncodedRows(truncation.cut_tokens(lengths, arrays), original_lengths)


def token_texts(encoders: Mapping[str, FieldEncoder], fields: Mapping[str, np.ndarray]) -> list[str]:
    """Return a readable text for each encoded token, with all its fields. `fields`: name → (T,) or (T, D)."""
    return [" ".join(parts) for parts in zip(*(encoder.decode(fields) for encoder in encoders.values()), strict=True)]


def decode(encoders: Mapping[str, FieldEncoder], fields: Mapping[str, np.ndarray], most: int = 40) -> str:
    """Return one encoded sequence as readable text, of a long one the first and last tokens.

    `fields`: name → (T,) or (T, D). At most `most` tokens are shown.
    """
    count = len(next(iter(fields.values())))
    shown = np.arange(count) if count <= most else np.r_[: most // 2, count - most // 2 : count]
    tokens = token_texts(encoders, {name: values[shown] for name, values in fields.items()})
    if count > most:
        tokens.insert(most // 2, f"… {count - len(shown):,} more …")
    return next(iter(encoders.values())).token_separator.join(tokens)


def input_specs(encoders: Mapping[str, FieldEncoder], classes: Sequence[str]) -> list[FieldSpec]:
    """Return the specs of all inputs of a model: those of the fields, and the parents of the nodes of a tree.

    `classes`: the labels, which nodes of a tree may have too.
    """
    specs: list[FieldSpec] = []
    for encoder in encoders.values():
        specs.append(encoder.spec())
        if encoder.tags is not None:
            class_of = {label: number for number, label in enumerate(classes)}
            node_classes = [class_of.get(tag, -1) for tag in encoder.tags]
            specs.append({"name": PARENTS, "kind": "parents", "node_classes": node_classes})
    return specs


def save_encoders(encoders: Mapping[str, FieldEncoder], folder: Path) -> None:
    """Write the state of each encoder to a new folder: NAME.json, and NAME.npy for pretrained vectors."""
    folder.mkdir(parents=True)
    for name, encoder in encoders.items():
        (folder / f"{name}.json").write_text(json.dumps(encoder.state(), ensure_ascii=False), encoding="utf-8")
        if encoder.vectors is not None:
            np.save(folder / f"{name}.npy", encoder.vectors, allow_pickle=False)


def load_encoders(fields: Iterable[Field], states: Callable[[str], EncoderState]) -> dict[str, FieldEncoder]:
    """Return the encoders of `fields`, restored from the state that `states` returns for each name.

    Raises InputError that names the encoder whose state is not valid.
    """
    encoders = make_encoders(fields)
    # Numbers that are scaled within categories have as many scales as the restored vocabulary has values.
    for name, encoder in sorted(encoders.items(), key=lambda entry: entry[1].fit_after_others):
        with error_context(f"encoder of {name}", "export or prepare it anew"):
            encoder.restore(states(name))
    return encoders


def load_encoder_files(fields: Iterable[Field], folder: Path) -> dict[str, FieldEncoder]:
    """Return the encoders that `save_encoders` wrote."""
    encoders = load_encoders(fields, lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    for name, encoder in encoders.items():
        if (folder / f"{name}.npy").is_file():
            encoder.vectors = np.load(folder / f"{name}.npy", allow_pickle=False)
    return encoders
