"""Interface of a field kind, which reads and checks cells, encodes tokens as arrays, and decodes arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.field_spec import TokenSpec, kind_of, number_specs, scaled_flags
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field, Option
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation

# `read("a", "b")` yields record batches with the staged columns a and b of all training rows, from the first on.
ReadColumns = Callable[..., Iterator[pa.RecordBatch]]
# Fitted state of an encoder as a JSON object, whose keys `FieldEncoder.restore` checks.
EncoderState = dict[str, Any]


class UnfitValueError(ValueError):
    """Error for a Python value that is not valid for its field, whose name users see before the message."""


class EncodedField(NamedTuple):
    """The encoded values of one field, for N rows with S tokens in total.

    `lengths`: (N,) int64 number of tokens per row. `arrays`: dict name → tokens of all rows, end to end: (S,) int32
    ids, (S, D) float32 channels, or (S, K) int32 ids of up to K values per token (see `BagSpec`). Only a tree has
    several arrays; others have one, named like the field.
    """

    lengths: np.ndarray
    arrays: dict[str, np.ndarray]


class FieldEncoder(ABC):
    """Base class of all field kinds. A kind declares a field, reads and checks its cells, encodes and decodes tokens.

    Cells that are lists of tokens need a `ListEncoder`, texts that are split into tokens a `RunningTextEncoder`.
    Methods are called in this order:

    1. Declaration: `options`, `complete` and `check_references` complete and check a field of a config or of a bundle,
    which may be from an untrusted source.
    2. Reading: `list_sql` and `event_sql` give the SQL of the canonical column, with one cell of `canonical_type` per
    sequence. `from_python` converts values in memory to this type.
    3. Row checks: `check` marks the rows that cannot be encoded.
    4. Encoding: `stage` runs while rows are read, before they are split. `fit` learns from the staged training rows.
    `encode_staged` encodes the staged rows of all splits; for prediction, `encode` gives the same arrays for the
    canonical column. The model builds its input layer by `spec`. A bundle stores `state`, and `restore` loads it.
    5. Views: reports call `decode` and `token_columns`, explanations call `neutral`.

    Only methods after `fit` or `restore` may use the fitted state. `truncation`: limit for kinds that stage texts.
    """

    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    # True if the encoder splits a text, which reports print, into tokens. It must be the only field, without events.
    holds_text: ClassVar[bool] = False
    takes_several_columns: ClassVar[bool] = False
    static_options: ClassVar[Collection[str]] = ()  # options of a static field, empty if the kind has no static fields
    file_options: ClassVar[tuple[str, ...]] = ()  # names of the options whose value is the path of a file
    may_be_cut: ClassVar[bool] = True  # True if data.truncate may shorten the sequences of such a field
    # How reports show this field alone: a strip of ids, a chart of `original_values`, or the texts of `token_columns`.
    form: ClassVar[Literal["strip", "chart", "text"]] = "text"
    encodes_token_by_token: bool = False  # True if the encoding of a token does not depend on other tokens
    looks_ahead: bool = False  # True if it depends on later tokens
    tags: Sequence[str] | None = None  # labels that nodes of a tree may have, or None if the field is not a tree
    vectors: np.ndarray | None = None  # (size, D) float32 pretrained vectors, one row per id

    def __init__(self, field: Field, truncation: Truncation = NO_TRUNCATION):
        self.field = field
        self.truncation = truncation
        self.set_up()

    def set_up(self) -> None:  # noqa: B027 (optional)
        """Set the attributes that depend on the field and its options."""

    def option(self, name: str) -> Any:
        return self.field.options.get(name, self.options[name].default)

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        """Return the field with the properties that the config does not set, such as the type of its values.

        `sample`: first rows of the file. `events`: True for an event table, in which a row is one token. Raises
        InputError if the declared field does not suit the sample.
        """
        return field

    def check_references(self, kinds: Mapping[str, str]) -> None:  # noqa: B027 (most kinds have no references)
        """Raise InputError for an option that names an unsuitable field or contradicts another. `kinds`: by field."""

    def describe(self) -> str:
        """Return a text with the type, the width and the options of the field, for reports and the console."""
        return ", ".join(f"{name}={value}" for name, value in self.field.options.items())

    @property
    @abstractmethod
    def canonical_type(self) -> pa.DataType:
        """Return the Arrow type of the canonical column."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """Return a phrase that describes a valid cell in errors, such as `a list of strings`."""

    @abstractmethod
    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        """Return the SQL of the canonical column of a table of sequences, null for a cell that is not valid.

        `types`: dict column → DuckDB type; raises InputError for an unsuitable one. `where`: the source in errors.
        """

    def event_sql(self, column: str, kind: str, where: str) -> str:
        """Return the SQL of a token's value in an event table, null if it is missing.

        `kind`: DuckDB type of the column; raises InputError for an unsuitable one. `where`: the source in errors.
        """
        raise NotImplementedError

    @property
    def parts(self) -> Collection[str]:
        """Return the keys under which a row in memory may hold the lists of this field."""
        return ()

    @abstractmethod
    def from_python(self, value: Any) -> Any:
        """Convert a Python value to a value of the canonical type.

        Raises UnfitValueError with a reason, or a plain ValueError, TypeError or Arrow error, if it is not valid.
        """

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Parse a sequence that was typed on the command line."""

    @abstractmethod
    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        """Call `problems.mark` for the rows of the canonical columns that cannot be encoded."""

    def stage(self, column: pa.Array) -> pa.Array:
        """Return the form in which valid rows are on disk until the splits are known, such as codes of values."""
        return column

    @abstractmethod
    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return uint64 keys of staged tokens: (S,) or (S, W) for a column of lists, otherwise (N,).

        Sequences with equal keys are duplicates, so equal tokens must have equal keys.
        """

    @abstractmethod
    def fit(self, read: ReadColumns) -> None:
        """Fit the encoder on the staged rows of the training split, whose lists are already truncated."""

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        """Encode Python cells without Arrow, which takes a fraction of the time for a few rows.

        Return None if the kind cannot, or if a cell is missing a value or has one of another type than in training.
        Then `from_python`, `check` and `encode` are needed.
        """
        return None

    @abstractmethod
    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        """Encode the canonical column of the field. Lists in the column must already be truncated."""

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        """Encode the staged column that `stage` returned."""
        return self.encode(record_batch)

    @abstractmethod
    def spec(self) -> TokenSpec:
        """Return the spec of the field's arrays, by which the model builds its input layer."""

    @abstractmethod
    def state(self) -> EncoderState:
        """Return the fitted state of the encoder as JSON values."""

    @abstractmethod
    def restore(self, state: EncoderState) -> None:
        """Load a fitted state that `state` returned. Raises InputError if it is not valid for this field."""

    @abstractmethod
    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """Return a readable text for each of T encoded tokens. `fields`: dict array name → (T,) or (T, D)."""

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """Return a dict heading → texts of tokens, empty where missing. By default, it holds the texts of `decode`.

        `fields`: dict array name → (T,) or (T, D) tokens of the whole sequence. `shown`: (M,) positions to show.
        """
        return {self.field.name: self.decode({name: tokens[shown] for name, tokens in fields.items()})}

    def original_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the (T, W) float64 numbers of encoded tokens in the units of the data, NaN where missing.

        Tokens of a field without numbers are returned as they are encoded: (T,) or (T, K) ids.
        """
        return fields[self.field.name]

    @property
    def unknown_id(self) -> int | None:
        """Return the id that stands for values that training did not have, or None for a field without such an id."""
        return kind_of(self.spec()).unknown_id

    @property
    def scaled_channels(self) -> list[int]:
        """Return the channels whose values are deviations from training, in standard deviations or robust ones.

        Where each sequence has its own scale, these are the channels with the level of the sequence.
        """
        flags = [flag for spec in number_specs([self.spec()]) for flag in spec.get("constant", scaled_flags(spec))]
        return [channel for channel, is_comparable in enumerate(flags) if is_comparable]

    def shared_scale(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return the (T, D) float32 channels on one scale for all sequences, or None if they are on one already.

        `fields`: dict array name → (T,) or (T, D) encoded tokens.
        """
        return None

    def neutral(self, tokens: np.ndarray) -> np.ndarray:
        """Return tokens without information, in the shape (S,) or (S, D) of `tokens`.

        By default, they are 0: the unknown value of a vocabulary, a set without values, or the mean of scaled numbers.
        """
        return np.zeros_like(tokens)

    def channel_names(self) -> list[str]:
        """Return the names of the first channels of a number field, which hold the values of the file."""
        return [self.field.name]
