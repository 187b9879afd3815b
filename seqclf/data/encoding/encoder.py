"""Interface of a field kind, which reads and checks cells, encodes tokens as arrays, and decodes arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.field_spec import UNKNOWN_IDS, TokenSpec
from seqclf.data.schema.field_options import Option
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation

# A function `read` of type `ReadColumns`: `read("a", "b")` yields record batches with the staged columns a and b of all
# training rows. Every call of `read` starts at the first row.
ReadColumns = Callable[..., Iterator[pa.RecordBatch]]
# `EncoderState` is the fitted state of an encoder as a JSON object. `FieldEncoder.restore` checks the keys of the JSON
# object.
EncoderState = dict[str, Any]


class UnfitValueError(ValueError):
    """Error for a Python value that is not valid for its field.

    Users see the name of the field before the message of the error.
    """


class EncodedField(NamedTuple):
    """The encoded values of one field, for N rows with S tokens in total.

    `lengths`: (N,) int64 number of tokens per row. `arrays`: dict name → array of the tokens of all rows, one row after
    the other. An array holds (S,) int32 ids, (S, D) float32 channels, or (S, K) int32 ids of up to K values per token
    (see `BagSpec`). A tree field has several arrays. A field that is not a tree has one array with the name of the
    field.
    """

    lengths: np.ndarray
    arrays: dict[str, np.ndarray]


class FieldEncoder(ABC):
    """Base class of all field kinds. A kind declares a field, reads and checks its cells, encodes and decodes tokens.

    Each field kind has its own subclass, which contains all code that is specific to the kind. If a cell is a list of
    tokens, the kind is a subclass of `ListEncoder`. If a cell is a text that is split into tokens, the kind is a
    subclass of `RunningTextEncoder`. Methods are called in this order:

    1. Declaration: a field is declared in a config or restored from a bundle. `options`, `complete` and
    `check_references` complete and check the field. Restored fields are checked like declared fields, because a bundle
    may come from an untrusted source.
    2. Reading: `list_sql` and `event_sql` return the SQL of the canonical column of a field. A canonical column has one
    cell per sequence and the type `canonical_type`. `from_python` converts values in memory to the same type.
    3. Row checks: `check` marks the rows that cannot be encoded.
    4. Encoding: training data is encoded in three passes. `stage` runs while rows are read and before the rows are
    split. `fit` learns from the staged rows of the training split. `encode_staged` turns the staged rows of all splits
    into arrays. Prediction calls `encode` on the canonical column, which gives the same arrays. `spec` describes the
    arrays, and the model builds its input layer from this description. `state` returns the fitted state, which a bundle
    stores, and `restore` loads the fitted state.
    5. Views: reports call `decode` and `token_columns`, and explanations call `neutral`.

    Only methods that are called after `fit` or `restore` may use the fitted state. `truncation`: limit of the sequence
    length. Only kinds that stage texts without truncating the texts use `truncation`.
    """

    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    # True if a cell is a text that the encoder splits into tokens. Such a field must be the only field of a dataset and
    # cannot be in an event table. Reports print the text unchanged.
    holds_text: ClassVar[bool] = False
    takes_several_columns: ClassVar[bool] = False
    static_options: ClassVar[Collection[str]] = ()  # options of a static field, empty if the kind has no static fields
    file_options: ClassVar[tuple[str, ...]] = ()  # names of the options whose value is the path of a file
    may_be_cut: ClassVar[bool] = True  # True if data.truncate may shorten the sequences of such a field
    token_separator: ClassVar[str] = " | "  # text between two decoded tokens
    # Form in which reports show sequences of this field alone: a strip of coloured ids, a chart of `original_values`,
    # or the texts of `token_columns`.
    form: ClassVar[Literal["strip", "chart", "text"]] = "text"
    encodes_token_by_token: bool = False  # True if the encoding of a token does not depend on other tokens
    tags: Sequence[str] | None = None  # labels that nodes of a tree may have, or None if the field is not a tree
    vectors: np.ndarray | None = None  # (size, D) float32 pretrained vectors, one row per id

    def __init__(self, field: Field, truncation: Truncation = NO_TRUNCATION):
        self.field = field
        self.truncation = truncation
        self.set_up()

    def set_up(self) -> None:  # noqa: B027 (optional)
        """Set the attributes that depend on the field and its options."""

    def option(self, name: str) -> Any:
        """Return the value of an option, or the default value if the field does not set the option."""
        return self.field.options.get(name, self.options[name].default)

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        """Return the field with added properties that the config does not set, such as the type of its values.

        `sample`: first rows of the file. `list_separator`: value of the config key data.list_separator. `events`: True
        for an event table, in which a row is one token and not a sequence. Raises InputError if the declared field does
        not suit the sample.
        """
        return field

    def check_references(self, kinds: Mapping[str, str]) -> None:  # noqa: B027 (most kinds have no references)
        """Raise InputError if an option names an unsuitable field, or if two options contradict each other.

        `kinds`: dict field name → field kind, for all fields of the dataset.
        """

    def describe(self) -> str:
        """Return a text with the type, the width and the options of the field, for reports and the console."""
        return ", ".join(f"{name}={value}" for name, value in self.field.options.items())

    @property
    @abstractmethod
    def canonical_type(self) -> pa.DataType:
        """Return the Arrow type of the canonical column. A canonical column has one cell per sequence."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """Return a phrase that describes a valid cell in errors, such as `a list of strings`."""

    @abstractmethod
    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        """Return the SQL of the canonical column, for a table with one row per sequence.

        The SQL evaluates to null for a cell that is not valid for the field. `types`: dict column → DuckDB type.
        `where`: name of the source in error messages. Raises InputError if the type of a column is not suitable for the
        field.
        """

    def event_sql(self, column: str, kind: str, where: str) -> str:
        """Return the SQL of a token's value in an event table. The SQL evaluates to null if the value is missing.

        `kind`: DuckDB type of the column. `where`: name of the source in error messages. Raises InputError if the type
        of the column is not suitable for the field.
        """
        raise NotImplementedError

    @property
    def parts(self) -> Collection[str]:
        """Return the keys under which a row in memory may hold the lists of this field."""
        return ()

    @abstractmethod
    def from_python(self, value: Any) -> Any:
        """Convert a Python value to a value of the canonical type.

        Raises UnfitValueError with a reason if the value is not valid for the field. A plain ValueError, a TypeError or
        an Arrow error also means that the value is not valid for the field.
        """

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Parse a sequence that was typed on the command line."""

    @abstractmethod
    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        """Call `problems.mark` for the rows of the canonical columns that cannot be encoded."""

    def stage(self, column: pa.Array) -> pa.Array:
        """Return the staged form of a column of valid rows.

        Staged columns are stored on disk until the splits are known. Category values and words are staged as
        provisional codes, which are small integers that are fast to count.
        """
        return column

    @abstractmethod
    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return uint64 keys of staged tokens.

        Two sequences are treated as duplicates if the keys of their tokens are equal. Equal tokens must have equal
        keys. For a column of lists, the keys have the shape (S,) or (S, W). For a column without lists, the keys have
        the shape (N,).
        """

    @abstractmethod
    def fit(self, read: ReadColumns) -> None:
        """Fit the encoder on the staged rows of the training split.

        The lists in the staged rows are already truncated.
        """

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        """Encode Python cells without Arrow, which takes a fraction of the time for a few rows.

        Return None if the kind cannot, or if a cell must be converted or checked: it has a missing value, or one of
        another type than in training. Then `from_python`, `check` and `encode` are needed.
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
        """Return the spec of the field's arrays: name, kind and size.

        The model builds its input layer from the spec.
        """

    @abstractmethod
    def state(self) -> EncoderState:
        """Return the fitted state of the encoder as JSON values."""

    @abstractmethod
    def restore(self, state: EncoderState) -> None:
        """Load a fitted state that the method `state` returned.

        Raises InputError if the state is not valid for this field.
        """

    @abstractmethod
    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """Return a readable text for each of T encoded tokens.

        `fields`: dict array name → (T,) or (T, D) encoded tokens.
        """

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """Return a table of tokens, as a dict column heading → texts of the column.

        A column of the table has one text for each token at the positions `shown`. In the table, the text of a missing
        value is empty. By default, the table has one column, which holds the texts of `decode`. `fields`: dict array
        name → (T,) or (T, D) encoded tokens of the whole sequence. `shown`: (M,) positions in the sequence of the
        tokens that the table shows.
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
        return UNKNOWN_IDS.get(self.spec()["kind"])

    @property
    def scaled_channels(self) -> list[int]:
        """Return the channels whose values are deviations from training, in standard deviations or robust ones.

        Where each sequence has its own scale, these are the channels with the level of the sequence.
        """
        spec = self.spec()
        flags = spec.get("constant", spec.get("scaled", [True] * spec["width"])) if spec["kind"] == "number" else []
        return [channel for channel, is_comparable in enumerate(flags) if is_comparable]

    def shared_scale(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return the (T, D) float32 channels of the tokens on one scale for all sequences.

        Return None if the encoded channels are on such a scale already. `fields`: dict array name → (T,) or (T, D)
        encoded tokens.
        """
        return None

    def neutral(self, tokens: np.ndarray) -> np.ndarray:
        """Return neutral tokens, which contain no information.

        The returned array has the shape of `tokens`, (S,) or (S, D). By default, neutral tokens are zeros. A 0 stands
        for the unknown value of a vocabulary, for a set without values, or for the mean of scaled numbers.
        """
        return np.zeros_like(tokens)

    def channel_names(self) -> list[str]:
        """Return the names of the channels of a number field that hold the values of the file.

        The channels with values of the file are the first channels of the field.
        """
        return [self.field.name]
