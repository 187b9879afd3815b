"""Category fields: a text or an integer per token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, time
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import NO_ENCODERS, EncodedField, EncoderState, FieldEncoder, ReadColumns
from seqclf.data.encoding.list_encoder import ListEncoder
from seqclf.data.encoding.vocabulary import VOCABULARY_OPTIONS, Vocabulary
from seqclf.data.field_spec import CategorySpec
from seqclf.data.ragged import list_lengths, list_offsets, list_values
from seqclf.data.schema.casts import (
    TEXT_TYPES,
    WHOLE_NUMBER_TYPES,
    bracketed_numbers,
    bracketed_texts,
    element_type,
    may_hold_fractions,
    split_list,
    whole_number,
    whole_numbers,
)
from seqclf.data.schema.cell_types import infer_elements
from seqclf.data.schema.field_options import Option, choice_option, text_option
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation

WHOLE_NUMBER = re.compile(r"([+-]?[0-9]+)(?:[.]0*)?")  # as in `casts.whole_number`


class CategoryEncoder(ListEncoder):
    """Values → ids of a vocabulary (see `Vocabulary`). A missing value, where the field allows it, has an id too.

    >>> encoder = CategoryEncoder(Field("shop", "category", ("shop",)))
    >>> train = pa.record_batch({"shop": encoder.stage(pa.array([["fuel", "cafe"], ["cafe"]]))})
    >>> encoder.fit(lambda *names: iter([train]))
    >>> encoder.encode(pa.record_batch({"shop": [["cafe", "hotel", "fuel"]]})).arrays["shop"].tolist()
    [1, 0, 2]
    """

    encodes_token_by_token = True
    options: ClassVar[Mapping[str, Option]] = {
        **VOCABULARY_OPTIONS,
        "missing": choice_option("refuse", "refuse", "value"),
        "separator": text_option(),
    }
    inference_rank = 90  # whatever is nothing else is a category

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

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        return not (events and pa.types.is_nested(cells.type))

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        return {"missing": "value"} if cells.null_count else {}

    @classmethod
    def complete_list(cls, field: Field, cells: pa.ChunkedArray) -> Field:
        elements, _ = infer_elements(cells, field.separator)
        return replace(field, values="integer" if elements == "integer" else "string")

    @classmethod
    def complete_event(cls, field: Field, cells: pa.ChunkedArray, separator: str | None) -> Field:
        # As text, 007 is not 7. uint64 does not fit the int64 of integer categories.
        integers = pa.types.is_integer(cells.type) and cells.type != pa.uint64()
        return replace(field, values="integer" if integers else "string")

    def describe(self) -> str:
        return ", ".join(filter(None, [f"{self.field.values}s", super().describe()]))

    @property
    def element_type(self) -> pa.DataType:
        return pa.int64() if self.integers else pa.string()

    @property
    def expected(self) -> str:
        return f"a list of {self.field.values}s"

    def text_sql(self, cell: str) -> str:
        if self.field.separator is not None:
            parts = split_list(cell, self.field.separator)
            if not self.integers:
                return f"TRY_CAST({parts} AS VARCHAR[])"
            exact = f"TRY_CAST({parts} AS BIGINT[])"
            return f"CASE WHEN {may_hold_fractions(cell)} THEN {whole_numbers(parts)} ELSE {exact} END"
        if not self.integers:
            return bracketed_texts(cell)
        exact = bracketed_numbers(cell, "BIGINT[]")
        return f"CASE WHEN {may_hold_fractions(cell)} THEN {whole_numbers(cell)} ELSE {exact} END"

    def elements_sql(self, column: str, kind: str) -> str:
        if not self.integers:
            return f"TRY_CAST({column} AS VARCHAR[])"
        is_whole = WHOLE_NUMBER_TYPES.fullmatch(element_type(kind))
        return f"TRY_CAST({column} AS BIGINT[])" if is_whole else whole_numbers(column)

    def value_sql(self, value: str, kind: str) -> str:
        if self.integers:
            return f"TRY_CAST({value} AS BIGINT)" if WHOLE_NUMBER_TYPES.fullmatch(kind) else whole_number(value)
        return f"NULLIF(CAST({value} AS VARCHAR), '')" if kind in TEXT_TYPES else f"CAST({value} AS VARCHAR)"

    def element_from_python(self, entry: Any) -> Any:
        return None if entry is None else value_from_python(entry, self.integers)

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of provisional codes, or of hashed ids."""
        codes = self.vocabulary.codes_of(pc.list_flatten(column))
        return pa.ListArray.from_arrays(list_offsets(list_lengths(column)).astype(np.int32), codes)

    def token_keys(self, column: pa.Array) -> np.ndarray:
        return self.vocabulary.keys_of(list_values(column))

    def fit(self, read: ReadColumns) -> None:
        name = self.field.name
        self.vocabulary.fit(list_values(record_batch.column(name)) for record_batch in read(name))

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        return self._encoded(column, self.vocabulary.ids_of(pc.list_flatten(column)))

    def encode_staged(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        return self._encoded(column, self.vocabulary.ids_of_codes(list_values(column)))

    def _encoded(self, column: pa.Array, ids: np.ndarray) -> EncodedField:
        return EncodedField(list_lengths(column), {self.field.name: ids})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        return [self.vocabulary.text_of(id) for id in fields[self.field.name].tolist()]

    def spec(self) -> CategorySpec:
        return {"name": self.field.name, "kind": "category", "size": self.vocabulary.size}

    def state(self) -> EncoderState:
        return self.vocabulary.state()

    def restore(self, state: EncoderState) -> None:
        self.vocabulary.restore(state)


def value_from_python(value: Any, integers: bool) -> int | str:
    """Convert a Python value to a text, or to an integer. Raises ValueError for what is none, as a table would refuse.

    >>> value_from_python("7.0", integers=True)
    7
    """
    if isinstance(value, (list, tuple, dict, set, np.ndarray)):
        raise ValueError(f"a token is one value, not a {type(value).__name__}")
    if not integers:
        return _text(value)
    if (isinstance(value, float) and value.is_integer()) or type(value) is int:
        return int(value)
    match = WHOLE_NUMBER.fullmatch(_text(value).strip())
    if match is None:
        raise ValueError(f"{value} is not an integer")
    return int(match[1])


def _text(value: Any) -> str:
    """Return a value as DuckDB casts it to text in a table.

    >>> _text(True), _text(1.5), _text(datetime(2026, 1, 2, 3, 4, 5, 500_000))
    ('true', '1.5', '2026-01-02 03:04:05.5')
    """
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, (datetime, time)) and value.microsecond and value.tzinfo is None:
        return str(value).rstrip("0")
    return str(value)
