"""Set fields: each token has several values, such as the codes of a visit or the items of a basket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.field_encoder import EncodedField
from seqclf.data.encoding.kinds.category import NO_WHOLE, texts_sql, value_from_python
from seqclf.data.encoding.vocabulary import VOCABULARY_OPTIONS, VocabularyEncoder
from seqclf.data.field_spec import COMBINATIONS, BagSpec
from seqclf.data.ragged import GOLDEN_GAMMA, is_list, lengths_or_zero, list_lengths, list_offsets, list_values, mix
from seqclf.data.schema import casts
from seqclf.data.schema.cell_types import (
    MAX_INTEGER,
    is_number,
    is_odd_text,
    is_text,
    list_cells,
    looks_bracketed,
    split_cell,
)
from seqclf.data.schema.problems import Problems, true_rows
from seqclf.data.schema.schema import Field, Option, choice_option, count_option, text_option
from seqclf.errors import InputError

NO_VALUE, UNKNOWN = 0, 1  # id 0 fills an empty slot, and id 1 is an unknown value; known values have ids from 2
MAX_VALUES = 64  # default limit of values per token; in a prepared dataset, every token is padded to the largest token
ODD_SHARE = 0.1  # lists of codes are sets, not vectors, if more than this fraction of rows has tokens of unequal size


class SetEncoder(VocabularyEncoder):
    """Encodes the values of a token, which may have none, as ids of a vocabulary, whose vectors the model combines.

    The order of the values is ignored. A value that occurs twice is encoded twice (see `BagSpec`).

    - `min_count`, `max_size`, `hash_size`: see `Vocabulary`.
    - `combine`: `mean`, `sum` or `max` of the vectors of a token's values.
    - `max_values`: maximum number of values of a token; rows with a larger one are rejected.
    - `missing`: with `empty`, a missing token has no values, and missing values within a set are left out.
    - `separator`: text between the values of a token in one text; `data.list_separator` is between tokens.

    >>> encoder = SetEncoder(Field("codes", "set", ("codes",)))
    >>> train = pa.record_batch({"codes": encoder.stage(pa.array([[["I10", "E11"], ["E11"]]]))})
    >>> encoder.fit(lambda *names: iter([train]))
    >>> encoder.encode(pa.record_batch({"codes": [[["Z99", "I10"], []]]})).arrays["codes"].tolist()
    [[1, 3], [0, 0]]
    """

    filled = "empty"
    options: ClassVar[Mapping[str, Option]] = {
        **VOCABULARY_OPTIONS,
        "combine": choice_option("mean", *COMBINATIONS),
        "max_values": count_option(MAX_VALUES),
        "missing": choice_option("refuse", "refuse", "empty"),
        "separator": text_option(),
    }
    widest = 1  # number of values of the largest token that was staged

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        """Return True if the tokens are lists of texts, or lists of integer codes with different lengths.

        Lists of numbers of one length are vectors, except in an event table. Most rows decide, as a few may be damaged.
        """
        if not events and is_list(cells.type) and not is_list(cells.type.value_type):
            return False  # return early, because it takes long to look at all values
        rows = _rows(cells, separator, events)
        if events:
            return any(value is not None for tokens in rows for token in tokens for value in token)
        with_values = [[value for token in tokens for value in token if value is not None] for tokens in rows]
        with_values = [values for values in with_values if values]
        if not with_values:
            return False
        with_texts = sum(any(is_odd_text(value) or not is_number(value) for value in values) for values in with_values)
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
        is_split = not events and is_text(cells.type) and not looks_bracketed(cells)
        return cls.completed(replace(field, separator=list_separator if is_split else None), cells, events)

    @classmethod
    def completed(cls, field: Field, cells: pa.ChunkedArray, events: bool) -> Field:
        if is_text(cells.type) and not looks_bracketed(cells) and field.options.get("separator") is None:
            key = f"data.fields.{field.name}"
            remedy = f"name what separates them: '{key}={{kind: set, separator: \";\"}}'"
            raise InputError(key, "the values of a token are in one text", remedy)
        return replace(field, values=_value_type(cells, field.separator, events))

    def describe(self) -> str:
        return f"sets of {super().describe()}"

    @property
    def element_type(self) -> pa.DataType:
        return pa.list_(pa.int64() if self.integers else pa.string())

    @property
    def expected(self) -> str:
        return f"a list of lists of {self.noun}"

    def text_sql(self, cell: str) -> str:
        if self.field.separator is not None:
            tokens = casts.split_list(cell, self.field.separator)
            return f"list_transform({tokens}, lambda token: {self._split_sql('token')})"
        typed = self._typed_sql(casts.bracketed_texts(cell, depth=2))
        if self.option("separator") is None:
            return typed
        split = f"list_transform({casts.bracketed_texts(cell)}, lambda token: {self._split_sql('token')})"
        return f"CASE WHEN starts_with({cell}, '[[') THEN {typed} ELSE {split} END"

    def elements_sql(self, column: str, kind: str) -> str:
        is_null = kind.startswith('"NULL"')  # True if all cells, or all tokens, are null
        if is_null or kind == "JSON" or casts.is_nested(casts.element_type(kind)):
            typed = casts.is_nested(casts.element_type(kind)) and not self.integers
            return texts_sql(column, kind, self.field.values) if typed else self._typed_sql(column)
        if self.option("separator") is None:
            raise self._single_values(kind)
        return f"list_transform(TRY_CAST({column} AS VARCHAR[]), lambda token: {self._split_sql('token')})"

    def _single_values(self, kind: str) -> InputError:
        key = f"data.fields.{self.field.name}"
        written = f"'{key}={{kind: set, separator: \";\"}}'"
        remedy = f"set {key}=category, or the separator of the values in a text: {written}"
        return InputError(key, f"the column holds {kind}, a value per token and not several", remedy)

    def event_sql(self, column: str, kind: str, where: str) -> str:
        is_list = kind.endswith("]") and not casts.is_nested(casts.element_type(kind))
        if casts.is_nested(kind) and not is_list:
            problem = f"column '{column}' holds {kind}, but with data.group_by a set is one list of values"
            raise InputError(where, problem, f"name another column than data.fields.{self.field.name}")
        if not is_list and kind not in (*casts.TEXT_TYPES, '"NULL"') and self.option("separator") is None:
            raise self._single_values(kind)
        # If single JSON values are cast to text, their quotes remain. If one JSON list is cast, the quotes are dropped.
        value = f"to_json({casts.quote_identifier(column)})" if kind.startswith("JSON[") else casts.plain(column, kind)
        return self.value_sql(value, kind)

    def value_sql(self, value: str, kind: str) -> str:
        if casts.is_nested(kind) or kind == '"NULL"':
            return self._values_sql(value) if self.integers else texts_sql(value, kind, self.field.values)
        if kind in casts.TEXT_TYPES and self.option("separator") is None:
            return self._values_sql(casts.bracketed_texts(f"NULLIF(trim({value}), '')"))
        return self._split_sql(f"CAST({value} AS VARCHAR)")

    def _split_sql(self, text: str) -> str:
        """Return SQL that splits the text of one token into its values. Empty values are left out."""
        parts = f"list_filter({casts.split_list(f'trim({text})', self.option('separator'))}, lambda part: part <> '')"
        return self._values_sql(parts)

    def _typed_sql(self, tokens: str) -> str:
        texts = f"TRY_CAST({tokens} AS VARCHAR[][])"
        return f"list_transform({texts}, lambda token: {casts.whole_numbers('token')})" if self.integers else texts

    def _values_sql(self, values: str) -> str:
        return casts.whole_numbers(values) if self.integers else f"TRY_CAST({values} AS VARCHAR[])"

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
        values, token_of_value = pc.list_flatten(elements), np.repeat(np.arange(len(counts)), counts)
        if values.null_count and not self.may_miss:
            tokens = np.unique(token_of_value[true_rows(values.is_null())])
            remedy = f"(set data.fields.{name}.missing=empty if values may be missing)"
            reason = f"has a value that is missing or no {self.field.values} {remedy}"
            problems.mark_tokens(tokens, row_of_token, column, reason)
        if self.integers:
            odd = token_of_value[true_rows(pc.fill_null(pc.equal(values, casts.NO_INTEGER), False))]
            problems.mark_tokens(np.unique(odd), row_of_token, column, NO_WHOLE)
        limit = self.option("max_values")
        reason = f"has a token of more than {limit} values; raise data.fields.{name}.max_values"
        problems.mark_tokens(np.flatnonzero(counts > limit), row_of_token, column, reason)

    def _values(self, column: pa.Array) -> tuple[np.ndarray, pa.Array]:
        """Return the (S,) number of values of each token, and all values. Forbidden nulls are rejected already."""
        tokens = pc.list_flatten(column)
        counts, values = lengths_or_zero(tokens).astype(np.int64), pc.list_flatten(tokens)
        if values.null_count:
            present = values.is_valid()
            token_of_value = np.repeat(np.arange(len(counts)), counts)[true_rows(present)]
            counts, values = np.bincount(token_of_value, minlength=len(counts)), values.filter(present)
        return counts, values

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of lists of provisional codes, or of ids if the vocabulary is hashed."""
        counts, values = self._values(column)
        self.widest = max(self.widest, int(counts.max(initial=1)))
        codes = pa.array(self.vocabulary.codes_of(values), pa.int32())
        tokens = pa.ListArray.from_arrays(list_offsets(counts).astype(np.int32), codes)
        return pa.ListArray.from_arrays(list_offsets(list_lengths(column)).astype(np.int32), tokens)

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return (S,) keys of tokens, equal for the same values in any order."""
        counts = lengths_or_zero(pc.list_flatten(column)).astype(np.int64)
        # Sums of different keys are almost never equal after mixing.
        keys = mix(self.vocabulary.keys_of(self.codes(column)) - GOLDEN_GAMMA)
        # Differences of running sums are exact even after an overflow, because unsigned integers wrap around.
        ends = np.cumsum(counts)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
        return mix(sums[ends] - sums[ends - counts] + counts.astype(np.uint64) - GOLDEN_GAMMA)

    def codes(self, column: pa.Array) -> np.ndarray:
        return list_values(pc.list_flatten(column))

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        counts, values = self._values(column)
        ids = self.vocabulary.ids_of(values)
        token_of_value = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((ids, token_of_value))  # ids are sorted, so that equal sets have equal arrays
        position = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_staged = values.type == pa.int32()  # staged tokens are padded to the size of the largest staged token
        width = self.widest if is_staged else int(counts.max(initial=1))
        array = np.full((len(counts), width), NO_VALUE, np.int32)
        array[token_of_value, position] = ids[order] + UNKNOWN
        return EncodedField(list_lengths(column), {self.field.name: array})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        tokens = ([id - UNKNOWN for id in ids if id != NO_VALUE] for ids in fields[self.field.name].tolist())
        return [f"{{{', '.join(map(self.vocabulary.text_of, ids))}}}" for ids in tokens]

    def spec(self) -> BagSpec:
        size = self.vocabulary.size + UNKNOWN
        return {"name": self.field.name, "kind": "bag", "size": size, "combine": self.option("combine")}


def _rows(cells: pa.ChunkedArray, separator: str | None, events: bool) -> list[list[list[Any]]]:
    """Return each row of a column as a list of tokens. Tokens that are not lists are left out."""
    if events:
        is_listed = is_list(cells.type) or looks_bracketed(cells)
        return [[token for token in list_cells(cells, None) if isinstance(token, list)]] if is_listed else []
    return [[token for token in row if isinstance(token, list)] for row in list_cells(cells, separator)]


def _value_type(cells: pa.ChunkedArray, separator: str | None, events: bool) -> str:
    """Texts of digits remain text, because 007 and 7 may be different codes."""
    rows = _rows(cells, separator, events)
    values = [value for tokens in rows for token in tokens for value in token if value is not None]
    innermost = cells.type
    while is_list(innermost):
        innermost = innermost.value_type
    are_integers = all(type(value) is int and abs(value) <= MAX_INTEGER for value in values)
    return "integer" if values and are_integers and innermost != pa.uint64() else "text"


def _is_code(value: Any) -> bool:
    return value.isdecimal() if isinstance(value, str) else type(value) is int and value >= 0
