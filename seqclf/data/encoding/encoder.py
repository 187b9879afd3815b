"""The interface of an encoder: one class per field kind, fit on training rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.field_spec import FieldSpec
from seqclf.data.encoding.truncation import NO_TRUNCATION, Truncation
from seqclf.data.schema.fields import Field

# `read("a", "b")` yields the columns a and b of all training rows. Each call starts again at the first row.
ReadColumns = Callable[..., Iterator[pa.RecordBatch]]
# Everything that an encoder has learned, as a JSON object. `restore` checks its keys.
EncoderState = dict[str, Any]
NO_ENCODERS: Mapping[str, Encoder] = MappingProxyType({})


class EncodedField(NamedTuple):
    """One field of N rows with S tokens in total.

    `lengths`: (N,) int64 tokens per row. `arrays`: name → (S,) int32 or (S, D) float32, the rows end to end. A tree has
    several arrays, every other field one under its own name.
    """

    lengths: np.ndarray
    arrays: dict[str, np.ndarray]


class Encoder(ABC):
    """Turns the tokens of one field into numbers.

    Training data is encoded in three passes. `stage` runs while rows are read, when splits are not known yet. `fit`
    learns from the staged rows of the training split. `encode_staged` turns the staged rows of all splits into arrays.
    Prediction calls `encode` on the column as it was read. Both ways give the same arrays.

    `others`: the encoders of all fields by name, for a field that depends on another. `truncation`: needed only where
    the text is staged uncut.
    """

    vectors: np.ndarray | None = None  # (size, D) float32 pretrained vectors, one row per id
    token_separator = " | "  # between tokens in `decode`d text

    def __init__(
        self,
        field: Field,
        others: Mapping[str, Encoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        self.field = field
        self.others = others
        self.truncation = truncation

    @property
    def fit_after_others(self) -> bool:
        """True if `fit` and `restore` need the fitted encoder of another field."""
        return False

    def stage(self, column: pa.Array) -> pa.Array:
        """Return the form of a column of accepted rows that is kept on disk until the splits are known.

        Category values and words become provisional codes, which are small and fast to count.
        """
        return column

    @abstractmethod
    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return uint64 keys of staged tokens, equal where tokens are equal, to detect duplicate sequences.

        (S,) or (S, W) for a column of lists, (N,) for a staged column that holds no lists.
        """

    @abstractmethod
    def fit(self, read: ReadColumns) -> None:
        """Learn from the staged rows of the training split, whose lists are already truncated."""

    @abstractmethod
    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        """Encode canonical columns, as the reader yields them. Lists must already be truncated."""

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        """Encode columns that `stage` returned."""
        return self.encode(record_batch)

    @abstractmethod
    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """Return a readable text for each of T encoded tokens. `fields`: name → (T,) or (T, D)."""

    def original_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return (T, W) float64 numbers as the data has them, NaN where the encoded tokens tell that one was missing.

        None for fields that are not numbers. `fields`: name → (T,) or (T, D).
        """
        return None

    @abstractmethod
    def spec(self) -> FieldSpec:
        """Return what a model needs to know of the field."""

    @abstractmethod
    def state(self) -> EncoderState:
        """Return everything learned."""

    @abstractmethod
    def restore(self, state: EncoderState) -> None:
        """Take over what `state` returned. Raises InputError if no encoder of this field can have that state."""
