"""The interface of a field kind: one class that reads, checks, fits, encodes and decodes a field."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.leave_one_out import Removal, TokenRemoval
from seqclf.data.field_spec import TokenSpec
from seqclf.data.ragged import Ragged
from seqclf.data.schema.field_options import Option
from seqclf.data.schema.problems import Problems
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation

# `read("a", "b")` yields the columns a and b of all training rows. Each call starts again at the first row.
ReadColumns = Callable[..., Iterator[pa.RecordBatch]]
# Everything that an encoder has learned, as a JSON object. `restore` checks its keys.
EncoderState = dict[str, Any]
NO_ENCODERS: Mapping[str, FieldEncoder] = MappingProxyType({})


class UnfitValueError(ValueError):
    """A Python value that does not fit its field. The message continues the name of the field."""


class EncodedField(NamedTuple):
    """One field of N rows with S tokens in total.

    `lengths`: (N,) int64 tokens per row. `arrays`: name → (S,) int32 ids, (S, D) float32 channels, or (S, K) int32 ids
    of several values per token (see `BagSpec`), the rows end to end. A tree has several arrays, every other field one
    under its own name.
    """

    lengths: np.ndarray
    arrays: dict[str, np.ndarray]


class FieldEncoder(ABC):
    """A field of one kind. The class knows everything about its kind, and nothing else branches on it.

    A kind subclasses `ListEncoder` (a cell is a list of tokens) or `RunningTextEncoder` (a cell is a text that is split
    into tokens). Its methods are called in this order:

    1. Declaration: `options`, `complete`, `check_references`. The field may be named in a config, or be restored from a
       bundle, which may come from anywhere.
    2. Reading: `list_sql` or `event_sql` give the canonical column of the field, whose type is `canonical_type`.
       `from_python` does the same for values in memory.
    3. Row checks: `check` refuses rows that cannot be encoded.
    4. Training data is encoded in three passes. `stage` runs while rows are read, when splits are not known yet. `fit`
       learns from the staged rows of the training split. `encode_staged` turns the staged rows of all splits into
       arrays. Prediction calls `encode` on the canonical column. Both ways give the same arrays.
    5. `spec` says what the model gets, `state` and `restore` travel in bundles, `decode` is for reports,
       `token_removal`, `without_tokens` and `neutral` for explanations.

    `others`: the encoders of all fields by name, for a field that depends on another. `truncation`: needed only where
    the text is staged uncut. Only what comes after `fit` or `restore` may depend on what was learned.
    """

    options: ClassVar[Mapping[str, Option]] = MappingProxyType({})
    stands_alone: ClassVar[bool] = False  # no other field can be next to it, as its tokens exist only once encoded
    takes_several_columns: ClassVar[bool] = False
    in_event_tables: ClassVar[bool] = True
    file_options: ClassVar[tuple[str, ...]] = ()  # options that name a file, whose content the encoder depends on
    may_be_cut: ClassVar[bool] = True  # by data.truncate
    removes_others: bool = False  # a token that is left out takes others along that have values too
    encodes_token_by_token: bool = False  # the arrays of a token depend on nothing but the token, so it may come alone
    tags: Sequence[str] | None = None  # labels that nodes of a tree may have, None for fields without structure
    holds_text: ClassVar[bool] = False  # a cell is a text, which reports show as it is in the file
    token_separator: ClassVar[str] = " | "  # between tokens in `decode`d text

    vectors: np.ndarray | None = None  # (size, D) float32 pretrained vectors, one row per id

    def __init__(
        self,
        field: Field,
        others: Mapping[str, FieldEncoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        self.field = field
        self.others = others
        self.truncation = truncation

    def option(self, name: str) -> Any:
        """Return an option, as set or by default."""
        return self.field.options.get(name, self.options[name].default)

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        """Return a declared field with what the configuration leaves open, such as the type of its values.

        `sample`: the first rows of the file. `list_separator`: that of the data config. `events`: a row is a token, not
        a sequence. Raises InputError.
        """
        return field

    def check_references(self) -> None:  # noqa: B027 (most kinds have none)
        """Raise InputError unless options that name other fields, and options together, can be used.

        `others` holds the encoders of all fields, none of them fit.
        """

    def describe(self) -> str:
        """Return type, width and options in words, for the console and reports."""
        return ", ".join(f"{name}={value}" for name, value in self.field.options.items())

    @property
    @abstractmethod
    def canonical_type(self) -> pa.DataType:
        """Type of the canonical column, a row per sequence."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """Phrase for a valid cell in errors, such as `a list of strings`."""

    @abstractmethod
    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        """SQL of the canonical column in a table with a row per sequence, null for a cell that does not fit.

        `types`: DuckDB type by column. `where`: the source, for errors. Raises InputError for a column that cannot hold
        the field.
        """

    def event_sql(self, column: str, kind: str, where: str) -> str:
        """SQL of the value of one token in an event table, null where it is missing. See `list_sql`.

        `kind`: DuckDB type of the column.
        """
        raise NotImplementedError

    def sorted_event_sql(self, name: str, kind: str) -> str | None:
        """SQL that replaces `event_sql` once the events are sorted, or None. `name`: of the sorted column.

        DuckDB moves a column that is both sorted by and selected only once, if it is selected as it is.
        """
        return None

    @property
    def parts(self) -> Collection[str]:
        """Names of the lists that make one value, of a field of several columns: a row in memory may have them."""
        return ()

    @abstractmethod
    def from_python(self, value: Any) -> Any:
        """Convert a Python value to the canonical type.

        Raises UnfitValueError with the reason if it does not fit, or any ValueError, TypeError or Arrow error.
        """

    @abstractmethod
    def parse(self, text: str) -> Any:
        """Read a sequence that was typed on the command line."""

    @abstractmethod
    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        """Mark rows of canonical columns that cannot be encoded."""

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

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """Return columns for a table of tokens: heading → a text for each token of `shown`, "" for a missing value.

        `fields`: name → (T,) or (T, D), the whole sequence. `shown`: (M,) positions in it. By default one column, of
        the texts of `decode`.
        """
        return {self.field.name: self.decode({name: tokens[shown] for name, tokens in fields.items()})}

    def original_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return (T, W) float64 numbers as the data has them, NaN where the encoded tokens tell that one was missing.

        None for fields that are not numbers. `fields`: name → (T,) or (T, D).
        """
        return None

    value_unit: ClassVar[str] = ""  # of `readable_values`

    def readable_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray | None:
        """Return the (T, W) float64 numbers that a reader knows: `original_values`, or the gaps between times."""
        return self.original_values(fields)

    def known_values(self, cell: Any) -> Any:
        """Return a canonical cell with the values by which a reader knows them, such as dates in place of seconds."""
        return cell

    def repeats_others(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return a mask of the tokens whose text in `token_columns` repeats others, which a line of all tokens omits.

        `fields`: name → (T,) or (T, D), the whole sequence.
        """
        return np.zeros(len(fields[self.field.name]), bool)

    def written_order(self, column: pa.Array) -> np.ndarray | None:
        """Return the index (S,) of each encoded token among those of its cell. None where the order is the same.

        `column`: canonical, of accepted rows.
        """
        return None

    def token_removal(self, sequences: Ragged) -> TokenRemoval:
        """Return what removes a token from copies of encoded sequences.

        It holds for all fields of the sequences, so only a kind that stands alone may override it.
        """
        return TokenRemoval(sequences.offsets)

    def traces(self, record_batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Return what `without_tokens` has to know of canonical columns, and encoded tokens do not tell.

        Arrays of (S,) or (S, D). Their names hold a space, as no field has.
        """
        return {}

    def without_tokens(self, fields: Mapping[str, np.ndarray], removal: Removal) -> np.ndarray:
        """Return the encoded tokens of sequences of which one token was removed, as if it had never been there.

        `removal`: by `token_removal`. `fields`: name → (S,) or (S, D) tokens of the complete rows, with their `traces`.
        A kind whose values depend on other tokens, such as the time since the token before, computes them anew.
        """
        return fields[self.field.name][removal.kept]

    def neutral(self, tokens: np.ndarray) -> np.ndarray:
        """Return tokens that say nothing, in the shape of `tokens`: (S,) or (S, D).

        Zeros are unknown values of a vocabulary, sets without values and the mean of scaled numbers.
        """
        return np.zeros_like(tokens)

    @abstractmethod
    def spec(self) -> TokenSpec:
        """Return what a model needs to know of the field."""

    @abstractmethod
    def state(self) -> EncoderState:
        """Return everything learned."""

    @abstractmethod
    def restore(self, state: EncoderState) -> None:
        """Take over what `state` returned. Raises InputError if no encoder of this field can have that state."""

    def channel_names(self) -> list[str]:
        """Return the names of the leading channels of a number input: the values as the file has them."""
        return [self.field.name]

    def constant_channels(self, encoded: np.ndarray) -> np.ndarray:
        """Return a mask of the channels of `channel_names` that never change. `encoded`: (S, D) channels."""
        values = np.asarray(encoded[:, : len(self.channel_names())])
        return (values == values[:1]).all(axis=0)

    @property
    def has_one_scale(self) -> bool:
        """True if the numbers of all sequences are scaled by the same mean and deviation."""
        return False

    def mask_channels(self) -> slice | None:
        """Return the channels that are 1 where a value is present, in the order of `channel_names`, if there are."""
        return None

    def outlier_warnings(self) -> list[str]:
        """Return a warning for each channel in which training held outliers."""
        return []
