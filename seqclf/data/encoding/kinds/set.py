"""Set fields: several values per token, such as the codes of a visit or the items of a basket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import NO_ENCODERS, EncodedField, EncoderState, FieldEncoder, ReadColumns
from seqclf.data.encoding.kinds.category import texts_sql, value_from_python, value_noun
from seqclf.data.encoding.list_encoder import ListEncoder
from seqclf.data.encoding.vocabulary import VOCABULARY_OPTIONS, Vocabulary
from seqclf.data.field_spec import COMBINATIONS, BagSpec
from seqclf.data.ragged import is_list, lengths_or_zero, list_lengths, list_offsets
from seqclf.data.schema.casts import (
    TEXT_TYPES,
    bracketed_texts,
    element_type,
    is_nested,
    plain,
    quote_identifier,
    split_list,
    whole_numbers,
)
from seqclf.data.schema.cell_types import MAX_INTEGER, is_number, is_text, list_cells, looks_bracketed, split_cell
from seqclf.data.schema.field_options import Option, choice_option, count_option, text_option
from seqclf.data.schema.problems import Problems, true_rows
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation
from seqclf.errors import InputError

NO_VALUE, UNKNOWN = 0, 1  # ids; those of the vocabulary follow
MAX_VALUES = 64  # of a token, because every token of a prepared dataset has room for the largest set
ODD_SHARE = 0.1  # of rows with tokens of another width than most, from which on codes are sets and no vectors


class SetEncoder(ListEncoder):
    """Several values per token → ids of a vocabulary, combined by the model to one vector (see `BagSpec`).

    The order of the values does not count, and a value that is given twice counts twice. A token may have no value.

    - `min_count`, `max_size`, `hash_size`: see `Vocabulary`.
    - `combine`: the `mean`, `sum` or `max` of the vectors of the values.
    - `max_values`: rows with more values in a token are refused.
    - `missing`: `empty` reads a missing token as a set without values, and leaves out missing values of a set.
    - `separator`: between the values of a token, where it is a text. `data.list_separator` stands between tokens.

    >>> encoder = SetEncoder(Field("codes", "set", ("codes",)))
    >>> train = pa.record_batch({"codes": encoder.stage(pa.array([[["I10", "E11"], ["E11"]]]))})
    >>> encoder.fit(lambda *names: iter([train]))
    >>> encoder.encode(pa.record_batch({"codes": [[["Z99", "I10"], []]]})).arrays["codes"].tolist()
    [[1, 3], [0, 0]]
    """

    encodes_token_by_token = True
    options: ClassVar[Mapping[str, Option]] = {
        **VOCABULARY_OPTIONS,
        "combine": choice_option("mean", *COMBINATIONS),
        "max_values": count_option(MAX_VALUES),
        "missing": choice_option("refuse", "refuse", "empty"),
        "separator": text_option(),
    }
    inference_rank = 20

    def __init__(
        self,
        field: Field,
        others: Mapping[str, FieldEncoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.integers = field.values == "integer"
        options = {name: self.option(name) for name in VOCABULARY_OPTIONS}
        self.vocabulary = Vocabulary(integers=self.integers, **options)
        self.widest = 1  # values of the largest staged token

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        """Return True for lists of texts, and for lists of codes of different lengths. Other lists are vectors.

        In an event table, lists are always sets. Elsewhere most rows decide, as a few may be damaged.
        """
        if not events and is_list(cells.type) and not is_list(cells.type.value_type):
            return False  # without a look at the values, which are many
        rows = _rows(cells, separator, events)
        if events:
            return any(value is not None for tokens in rows for token in tokens for value in token)
        with_values = [[value for token in tokens for value in token if value is not None] for tokens in rows]
        with_values = [values for values in with_values if values]
        if not with_values:
            return False
        with_texts = sum(any(not is_number(value) for value in values) for values in with_values)
        if 2 * with_texts > len(with_values):
            return True
        with_measurements = sum(not all(map(_is_code, values)) for values in with_values)
        widths = Counter(len(token) for tokens in rows for token in tokens)
        (common, _), *_ = widths.most_common(1)
        odd = sum(any(len(token) != common for token in tokens) for tokens in rows)
        return with_measurements <= ODD_SHARE * len(with_values) and odd > ODD_SHARE * len(rows)

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        return {"missing": "empty"} if cells.null_count else {}

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        cells = sample.column(field.columns[0])
        if events:
            return cls.complete_event(field, cells, None)
        is_split = is_text(cells.type) and not looks_bracketed(cells)
        return cls.complete_list(replace(field, separator=list_separator if is_split else None), cells)

    @classmethod
    def complete_list(cls, field: Field, cells: pa.ChunkedArray) -> Field:
        if is_text(cells.type) and not looks_bracketed(cells):
            _require_separator(field)
        return replace(field, values=_value_type(cells, field.separator, events=False))

    @classmethod
    def complete_event(cls, field: Field, cells: pa.ChunkedArray, separator: str | None) -> Field:
        if is_text(cells.type) and not looks_bracketed(cells):
            _require_separator(field)
        return replace(field, values=_value_type(cells, None, events=True))

    def describe(self) -> str:
        return ", ".join(filter(None, [f"sets of {value_noun(self.field)}", super().describe()]))

    @property
    def element_type(self) -> pa.DataType:
        return pa.list_(pa.int64() if self.integers else pa.string())

    @property
    def expected(self) -> str:
        return f"a list of lists of {value_noun(self.field)}"

    def text_sql(self, cell: str) -> str:
        if self.field.separator is not None:
            tokens = split_list(cell, self.field.separator)
            return f"list_transform({tokens}, lambda token: {self._split_sql('token')})"
        typed = self._typed_sql(bracketed_texts(cell, depth=2))
        if self.option("separator") is None:
            return typed
        split = f"list_transform({bracketed_texts(cell)}, lambda token: {self._split_sql('token')})"
        return f"CASE WHEN starts_with({cell}, '[[') THEN {typed} ELSE {split} END"

    def elements_sql(self, column: str, kind: str) -> str:
        is_null = kind.startswith('"NULL"')  # no cell, or no token, has a value
        if is_null or kind == "JSON" or is_nested(element_type(kind)):
            typed = is_nested(element_type(kind)) and not self.integers
            return texts_sql(column, kind, self.field.values) if typed else self._typed_sql(column)
        if self.option("separator") is None:
            raise self._single_values(kind)
        return f"list_transform(TRY_CAST({column} AS VARCHAR[]), lambda token: {self._split_sql('token')})"

    def _single_values(self, kind: str) -> InputError:
        key = f"data.fields.{self.field.name}"
        return InputError(
            key,
            f"the column holds {kind}, a value per token and not several",
            f"set {key}=category, or the separator of the values in a text: '{key}={{kind: set, separator: \";\"}}'",
        )

    def event_sql(self, column: str, kind: str, where: str) -> str:
        is_list = kind.endswith("]") and not is_nested(element_type(kind))
        if is_nested(kind) and not is_list:
            raise InputError(
                where,
                f"column '{column}' holds {kind}, but with data.group_by a set is one list of values",
                f"name another column than data.fields.{self.field.name}",
            )
        if not is_list and kind not in (*TEXT_TYPES, '"NULL"') and self.option("separator") is None:
            raise self._single_values(kind)
        # Casts of JSON values keep their quotes, casts of a JSON list do not.
        value = f"to_json({quote_identifier(column)})" if kind.startswith("JSON[") else plain(column, kind)
        return self.value_sql(value, kind)

    def value_sql(self, value: str, kind: str) -> str:
        if is_nested(kind) or kind == '"NULL"':
            return self._values_sql(value) if self.integers else texts_sql(value, kind, self.field.values)
        if kind in TEXT_TYPES and self.option("separator") is None:
            return self._values_sql(bracketed_texts(f"NULLIF(trim({value}), '')"))
        return self._split_sql(f"CAST({value} AS VARCHAR)")

    def _split_sql(self, text: str) -> str:
        """The values of a token that is a text. A blank text has none, and neither do separators at its ends."""
        parts = f"list_filter({split_list(f'trim({text})', self.option('separator'))}, lambda part: part <> '')"
        return self._values_sql(parts)

    def _typed_sql(self, tokens: str) -> str:
        """A nested list with values of the field's type."""
        texts = f"TRY_CAST({tokens} AS VARCHAR[][])"
        return f"list_transform({texts}, lambda token: {whole_numbers('token')})" if self.integers else texts

    def _values_sql(self, values: str) -> str:
        """A list with values of the field's type."""
        return whole_numbers(values) if self.integers else f"TRY_CAST({values} AS VARCHAR[])"

    def element_from_python(self, entry: Any) -> Any:
        if entry is None:
            return None
        if isinstance(entry, str) or not hasattr(entry, "__iter__"):
            raise ValueError(f"{entry} is not a list of values")
        return [None if value is None else value_from_python(value, self.field.values) for value in entry]

    def parse_element(self, entry: Any) -> Any:
        separator = self.option("separator")
        if not isinstance(entry, str):
            return entry
        return [entry] if separator is None else [part for part in split_cell(entry, separator) if part]

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        name, column = self.field.name, self.field.column
        counts = lengths_or_zero(elements)
        values = pc.list_flatten(elements)
        if values.null_count and not self.may_miss:
            tokens = np.unique(np.repeat(np.arange(len(counts)), counts)[true_rows(values.is_null())])
            reason = (
                f"has a value that is missing or no {self.field.values} (set data.fields.{name}.missing=empty if "
                "values may be missing)"
            )
            problems.mark_tokens(tokens, row_of_token, column, reason)
        limit = self.option("max_values")
        reason = f"has a token of more than {limit} values; raise data.fields.{name}.max_values"
        problems.mark_tokens(np.flatnonzero(counts > limit), row_of_token, column, reason)

    def _values(self, column: pa.Array) -> tuple[np.ndarray, pa.Array]:
        """(S,) number of values of each token, and all values. Nulls are left out, as `check_elements` allowed them."""
        tokens = pc.list_flatten(column)
        counts, values = lengths_or_zero(tokens).astype(np.int64), pc.list_flatten(tokens)
        if values.null_count:
            present = values.is_valid()
            token_of_value = np.repeat(np.arange(len(counts)), counts)[true_rows(present)]
            counts, values = np.bincount(token_of_value, minlength=len(counts)), values.filter(present)
        return counts, values

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of lists of provisional codes, or of hashed ids."""
        counts, values = self._values(column)
        self.widest = max(self.widest, int(counts.max(initial=1)))
        codes = pa.array(self.vocabulary.codes_of(values), pa.int32())
        tokens = pa.ListArray.from_arrays(list_offsets(counts).astype(np.int32), codes)
        return pa.ListArray.from_arrays(list_offsets(list_lengths(column)).astype(np.int32), tokens)

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """(S,) keys, equal for tokens of the same values in any order."""
        counts, codes = self._values(column)
        keys = _scattered(self.vocabulary.keys_of(codes.to_numpy(zero_copy_only=False)))
        # Sums of unsigned integers wrap around, so differences of running sums are exact.
        ends = np.cumsum(counts)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
        return _scattered(sums[ends] - sums[ends - counts] + counts.astype(np.uint64))

    def fit(self, read: ReadColumns) -> None:
        name = self.field.name
        batches = (self._values(record_batch.column(name))[1] for record_batch in read(name))
        self.vocabulary.fit(codes.to_numpy(zero_copy_only=False) for codes in batches)

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        counts, values = self._values(column)
        return self._encoded(column, counts, self.vocabulary.ids_of(values), int(counts.max(initial=1)))

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        counts, codes = self._values(column)
        ids = self.vocabulary.ids_of_codes(codes.to_numpy(zero_copy_only=False))
        return self._encoded(column, counts, ids, self.widest)

    def _encoded(self, column: pa.Array, counts: np.ndarray, ids: np.ndarray, width: int) -> EncodedField:
        token_of_value = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((ids, token_of_value))  # so that equal sets become equal arrays
        position = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
        array = np.full((len(counts), width), NO_VALUE, np.int32)
        array[token_of_value, position] = ids[order] + UNKNOWN
        return EncodedField(list_lengths(column), {self.field.name: array})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        tokens = ([id - UNKNOWN for id in ids if id != NO_VALUE] for ids in fields[self.field.name].tolist())
        return [f"{{{', '.join(map(self.vocabulary.text_of, ids))}}}" for ids in tokens]

    def spec(self) -> BagSpec:
        size = self.vocabulary.size + UNKNOWN
        return {"name": self.field.name, "kind": "bag", "size": size, "combine": self.option("combine")}

    def state(self) -> EncoderState:
        return self.vocabulary.state()

    def restore(self, state: EncoderState) -> None:
        self.vocabulary.restore(state)


def _require_separator(field: Field) -> None:
    """Raise InputError unless the separator of the values in a text is set."""
    if field.options.get("separator") is None:
        key = f"data.fields.{field.name}"
        raise InputError(
            key,
            "the values of a token are in one text",
            f"name what separates them: '{key}={{kind: set, separator: \";\"}}'",
        )


def _rows(cells: pa.ChunkedArray, separator: str | None, events: bool) -> list[list[list[Any]]]:
    """The rows of a column as lists of tokens that are lists. Texts that a separator splits have none."""
    if events:
        is_listed = is_list(cells.type) or looks_bracketed(cells)
        return [[token for token in list_cells(cells, None) if isinstance(token, list)]] if is_listed else []
    return [[token for token in row if isinstance(token, list)] for row in list_cells(cells, separator)]


def _value_type(cells: pa.ChunkedArray, separator: str | None, events: bool) -> str:
    """`integer` if all values are stored as integers of 64 bits, else `text`: as such, 007 is not 7."""
    rows = _rows(cells, separator, events)
    values = [value for tokens in rows for token in tokens for value in token if value is not None]
    innermost = cells.type
    while is_list(innermost):
        innermost = innermost.value_type
    are_integers = all(type(value) is int and abs(value) <= MAX_INTEGER for value in values)
    return "integer" if values and are_integers and innermost != pa.uint64() else "text"


def _is_code(value: Any) -> bool:
    """True for whole numbers from 0, and texts that spell one."""
    return value.isdecimal() if isinstance(value, str) else type(value) is int and value >= 0


def _scattered(keys: np.ndarray) -> np.ndarray:
    """(S,) uint64 keys, mixed by SplitMix64, so that sums of different keys hardly ever agree."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
