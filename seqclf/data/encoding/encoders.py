"""Steps of a field → numbers a model reads. Each encoder is fit on the training split and saved as JSON.

Id 0 of every vocabulary is the unknown value. Padding needs no id: padded steps are never read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.scaler import Scaler
from seqclf.data.encoding.time_gap import Clock
from seqclf.data.encoding.tokenizer import Tokenizer
from seqclf.data.encoding.tree_tokenizer import TreeTokenizer
from seqclf.data.encoding.truncation import ORIGINAL_LENGTH, WHOLE, Truncation
from seqclf.data.encoding.vocabulary import Vocabulary
from seqclf.data.schema.fields import Field
from seqclf.data.storage.ragged import Ragged
from seqclf.system.stored_state import error_context

Batches = Callable[..., Iterator[pa.RecordBatch]]


class Encoded(NamedTuple):
    """Rows of a batch as the model gets them, and `original_lengths`: (N,) int64 lengths before truncation."""

    sequences: Ragged
    original_lengths: np.ndarray


class Encoder(Protocol):
    """`stage` turns a column of accepted rows into what is kept on disk until the splits are known, where category
    values and words are provisional codes; `bits` gives uint64 (S,) or (S, W) of staged tokens, or (N,) of a staged
    column that holds no lists, equal where they are; `fit` reads staged training rows, lists cut already; `encode`
    gives lengths (N,) int64 and the arrays of the field, from canonical columns or (`staged`) from staged ones; `spell`
    gives a text for each encoded step."""

    def stage(self, column: pa.Array) -> pa.Array: ...
    def token_keys(self, column: pa.Array) -> np.ndarray: ...
    def fit(self, batches: Batches) -> None: ...
    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]: ...
    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]: ...
    def spec(self) -> dict[str, Any]: ...
    def state(self) -> dict[str, Any]: ...


KINDS: dict[str, Any] = {
    "category": Vocabulary,
    "number": Scaler,
    "time": Clock,
    "text": Tokenizer,
    "tree": TreeTokenizer,
}
FIT_AT_ONCE = 2
LAST = "number"  # numbers may be scaled within the categories of another field


def make_encoders(fields: Iterable[Field], truncation: Truncation = WHOLE) -> dict[str, Encoder]:
    """One encoder per field, in the order of the fields, not fit yet. `truncation` is needed to fit `bpe` only, whose
    texts are staged uncut."""
    encoders: dict[str, Encoder] = {}
    for field in fields:
        encoders[field.name] = KINDS[field.kind](field, encoders)
        if isinstance(encoder := encoders[field.name], Tokenizer):
            encoder.truncation = truncation
    return encoders


def fit_encoders(encoders: Mapping[str, Encoder], batches: Batches) -> None:
    """Fit each on staged training rows, two at a time; `batches(*names)` gives these columns at each call."""
    with ThreadPoolExecutor(FIT_AT_ONCE) as pool:
        for last in (False, True):
            chosen = [encoder for encoder in encoders.values() if (encoder.spec()["kind"] == LAST) is last]
            list(pool.map(lambda encoder: encoder.fit(batches), chosen))


def encode(
    encoders: Mapping[str, Encoder], batch: pa.RecordBatch, truncation: Truncation, staged: bool = False
) -> Encoded:
    """Every field of a batch, cut. The lists of `staged` batches are cut already.

    The tokenizer may leave a row without a token; its length is 0 then.
    """
    if not staged:
        batch = truncation.lists(batch, encoders)
    lengths = np.zeros(batch.num_rows, np.int64)
    arrays: dict[str, np.ndarray] = {}
    for encoder in encoders.values():
        lengths, own = encoder.encode(batch, staged)
        arrays |= own
    original_lengths = lengths
    if ORIGINAL_LENGTH in batch.schema.names:
        original_lengths = batch.column(ORIGINAL_LENGTH).to_numpy(zero_copy_only=False).astype(np.int64)
    return Encoded(truncation.ragged(lengths, arrays), original_lengths)


def decode(encoders: Mapping[str, Encoder], fields: Mapping[str, np.ndarray], most: int = 40) -> str:
    """One encoded sequence as a person reads it; of a long one its first and last steps. `fields[name]`: (T,) or
    (T, D)."""
    count = len(next(iter(fields.values())))
    ends = np.arange(count) if count <= most else np.r_[: most // 2, count - most // 2 : count]
    spelled = zip(
        *(encoder.decode({name: steps[ends] for name, steps in fields.items()}) for encoder in encoders.values()),
        strict=True,
    )
    steps = [" ".join(parts) for parts in spelled]
    if count > most:
        steps.insert(most // 2, f"… {count - len(ends):,} more …")
    return (" " if len(encoders) == 1 and isinstance(next(iter(encoders.values())), Tokenizer) else " | ").join(steps)


def save_encoders(encoders: Mapping[str, Encoder], folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, encoder in encoders.items():
        (folder / f"{name}.json").write_text(json.dumps(encoder.state(), ensure_ascii=False), encoding="utf-8")
        if isinstance(encoder, Tokenizer) and encoder.vectors is not None:
            np.save(folder / f"{name}.npy", encoder.vectors, allow_pickle=False)


def load_encoders(fields: Iterable[Field], states: Callable[[str], dict[str, Any]]) -> dict[str, Encoder]:
    """The encoders of `fields`; `states` gives the state of each by name. Raises InputError, which names the encoder,
    on a state that none can have."""
    encoders = make_encoders(fields)
    # Numbers last: those scaled within categories have as many scales as the restored vocabulary has values.
    for name, encoder in sorted(encoders.items(), key=lambda entry: entry[1].spec()["kind"] == LAST):
        with error_context(f"encoder of {name}", "export or prepare it anew"):
            encoder.restore(states(name))  # type: ignore[attr-defined]
    return encoders


def load_encoder_files(fields: Iterable[Field], folder: Path) -> dict[str, Encoder]:
    encoders = load_encoders(fields, lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    for name, encoder in encoders.items():
        if (folder / f"{name}.npy").is_file() and isinstance(encoder, Tokenizer):
            encoder.vectors = np.load(folder / f"{name}.npy", allow_pickle=False)
    return encoders
