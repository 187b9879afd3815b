"""Category fields: each token is a text or an integer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.field_encoder import EncodedField
from seqclf.data.encoding.vocabulary import VOCABULARY_OPTIONS, VocabularyEncoder
from seqclf.data.field_spec import CategorySpec
from seqclf.data.ragged import list_lengths, list_offsets
from seqclf.data.schema import casts, cell_types
from seqclf.data.schema.problems import Problems, true_rows
from seqclf.data.schema.schema import Field, Option, choice_option, text_option

NO_WHOLE = "has a value that is no whole number"
WHOLE_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(?:[.]0*)?")  # matches the same integers as `casts.whole_number`


class CategoryEncoder(VocabularyEncoder):
    """Encodes categorical values as ids of a vocabulary (see `Vocabulary`). With `missing: value`, null has an id.

    >>> encoder = CategoryEncoder(Field("shop", "category", ("shop",)))
    >>> train = pa.record_batch({"shop": encoder.stage(pa.array([["fuel", "cafe"], ["cafe"]]))})
    >>> encoder.fit(lambda *names: iter([train]))
    >>> encoder.encode(pa.record_batch({"shop": [["cafe", "hotel", "fuel"]]})).arrays["shop"].tolist()
    [1, 0, 2]
    """

    options: ClassVar[Mapping[str, Option]] = {
        **VOCABULARY_OPTIONS,
        "missing": choice_option("refuse", "refuse", "value"),
        "separator": text_option(),
        "values": choice_option("auto", "auto", "text"),
    }
    static_options = options.keys() - {"separator"}
    form = "strip"

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        return not (events and pa.types.is_nested(cells.type))

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        has_empty = cell_types.is_text(cells.type) and pc.any(pc.equal(cells, "")).as_py()
        has_words = cell_types.holds_missing(cells) and _are_integers(cells)
        return {"missing": "value"} if cells.null_count or has_empty or has_words else {}

    @classmethod
    def completed(cls, field: Field, cells: pa.ChunkedArray, events: bool) -> Field:
        if events:
            # Texts remain text, but for the cells of a text file. int64 cannot hold all values of uint64.
            integers = _are_integers(cells) or (pa.types.is_integer(cells.type) and cells.type != pa.uint64())
            values = cells.to_pylist()
        else:
            integers = cell_types.infer_elements(cells, field.separator)[0] == "integer"
            values = [entry for cell in cell_types.list_cells(cells, field.separator) for entry in cell]
        integers = integers and field.options.get("values") != "text"
        return replace(field, values="integer" if integers else text_or_boolean(values))

    @property
    def element_type(self) -> pa.DataType:
        return pa.int64() if self.integers else pa.string()

    @property
    def expected(self) -> str:
        return f"a list of {self.noun}"

    def text_sql(self, cell: str) -> str:
        separator = self.field.separator
        parts = casts.bracketed_texts(cell) if separator is None else casts.split_list(cell, separator)
        if not self.integers:
            return self._texts_sql(parts, "VARCHAR[]")
        exact = casts.bracketed_numbers(cell, "BIGINT[]") if separator is None else f"TRY_CAST({parts} AS BIGINT[])"
        return f"CASE WHEN {casts.may_hold_others(cell, separator)} THEN {casts.whole_numbers(parts)} ELSE {exact} END"

    def elements_sql(self, column: str, kind: str) -> str:
        if not self.integers:
            return self._texts_sql(column, kind)
        is_whole = casts.WHOLE_NUMBER_TYPES.fullmatch(casts.element_type(kind))
        return f"TRY_CAST({column} AS BIGINT[])" if is_whole else casts.whole_numbers(column)

    def value_sql(self, value: str, kind: str) -> str:
        if self.integers:
            is_whole = casts.WHOLE_NUMBER_TYPES.fullmatch(kind)
            return f"TRY_CAST({value} AS BIGINT)" if is_whole else casts.whole_number(value)
        if kind not in casts.TEXT_TYPES:
            return casts.spelled_sql(value, kind)
        text = f"NULLIF(CAST({value} AS VARCHAR), '')"
        return casts.boolean_sql(text) if self.field.values == "boolean" else text

    def _texts_sql(self, column: str, kind: str) -> str:
        texts = texts_sql(column, kind, self.field.values)
        return f"list_transform({texts}, lambda entry: NULLIF(entry, ''))" if self.may_miss else texts

    def element_from_python(self, entry: Any) -> Any:
        is_absent = entry is None or type(entry).__name__ in ("NAType", "NaTType") or (self.may_miss and entry == "")
        is_nan = isinstance(entry, (float, np.floating)) and entry != entry
        return None if is_absent or is_nan else value_from_python(entry, self.field.values)

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        if self.integers:
            bad = true_rows(pc.fill_null(pc.equal(elements, casts.NO_INTEGER), False))
            reason = f"{NO_WHOLE}; {self.field.key}=number reads quantities, {self.field.key}.values=text codes"
            problems.mark_tokens(bad, row_of_token, self.field.column, reason)

    def stage(self, column: pa.Array) -> pa.Array:
        """Return lists of provisional codes. If the vocabulary is hashed, return lists of ids."""
        codes = self.vocabulary.codes_of(pc.list_flatten(column))
        return pa.ListArray.from_arrays(list_offsets(list_lengths(column)).astype(np.int32), codes)

    def token_keys(self, column: pa.Array) -> np.ndarray:
        return self.vocabulary.keys_of(self.codes(column))

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        ids = self.vocabulary.ids_of(pc.list_flatten(column))
        return EncodedField(list_lengths(column), {self.field.name: ids})

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        found = None if self.field.values == "boolean" else self.plain_elements(cells, [int if self.integers else str])
        if found is None or "" in found[1] or (ids := self.vocabulary.plain_ids(found[1])) is None:
            return None
        return EncodedField(found[0], {self.field.name: ids})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        return [self.vocabulary.text_of(id) for id in fields[self.field.name].tolist()]

    def spec(self) -> CategorySpec:
        return {"name": self.field.name, "kind": "category", "size": self.vocabulary.size}


def _are_integers(cells: pa.ChunkedArray) -> bool:
    """Return True for the cells of a text file if all that are not missing are integers as programs write them."""
    if not pa.types.is_large_string(cells.type):
        return False
    present = [cell_types.Spelled(cell) for cell in cells.to_pylist() if not cell_types.is_missing(cell)]
    return bool(present) and cell_types.element_type_of([present])[0] == "integer"


def text_or_boolean(values: Iterable[Any]) -> str:
    """Return `boolean` if all values are or spell booleans with one capitalization, such as `True`, otherwise `text`.

    >>> text_or_boolean(["True", "False"]), text_or_boolean(["True", "true"])
    ('boolean', 'text')
    """
    present = [value for value in values if value is not None]
    if not all(isinstance(value, (bool, str)) for value in present):
        return "text"
    distinct = set(present) - {""}
    spellings = ({True, False}, {"true", "false"}, {"True", "False"}, {"TRUE", "FALSE"})
    return "boolean" if distinct and any(distinct <= words for words in spellings) else "text"


def texts_sql(column: str, kind: str, values: str) -> str:
    """Return SQL that casts the elements of lists (of lists) of the DuckDB type `kind` to texts, as `values` says."""
    nesting = "[]" * max(1, kind.count("["))
    if casts.element_type(kind) in ('"NULL"', *casts.TEXT_TYPES) or not kind.endswith("]"):
        texts = f"TRY_CAST({column} AS VARCHAR{nesting})"
        spelled = f"list_transform({texts}, lambda entry: {casts.boolean_sql('entry')})"
        return spelled if values == "boolean" and nesting == "[]" else texts
    return casts.spelled_sql(column, kind)


def value_from_python(value: Any, values: str) -> int | str | None:
    """Convert a Python value to a text or an integer, by the rules for a cell of a table. Raises ValueError.

    `values`: type of the field's values (see `Field`).

    >>> value_from_python("7.0", "integer"), value_from_python(7.0, "text"), value_from_python("7.0", "text")
    (7, '7', '7.0')
    """
    if isinstance(value, (list, tuple, dict, set, np.ndarray)):
        raise ValueError(f"a token is one value, not a {type(value).__name__}")
    if isinstance(value, bytes):
        value = value.decode()  # raises a ValueError if the bytes are not UTF-8
    if values == "boolean" and isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower()
    if values != "integer":
        return _spelled(value)
    if (isinstance(value, float) and value.is_integer()) or type(value) is int:
        return int(value)
    if cell_types.is_missing(value):
        return None
    match = WHOLE_NUMBER.fullmatch(_text(value).strip())
    if match is None:
        raise ValueError(f"{value} is not an integer")
    return int(match[1])


def _spelled(value: Any) -> str:
    """Return the text to which `casts.spelled_sql` converts the same value in a table.

    >>> _spelled(7.0), _spelled(Decimal("1.50")), _spelled(datetime(2026, 1, 2)), _spelled("7.0")
    ('7', '1.5', '2026-01-02', '7.0')
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, (float, np.floating)) and float(value).is_integer() and abs(float(value)) < 2**53:
        return str(int(value))
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    if isinstance(value, datetime):
        value = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return _text(value).removesuffix(" 00:00:00")
    return _text(value)


def _text(value: Any) -> str:
    """Return the text to which DuckDB casts the same value.

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
