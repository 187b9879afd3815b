"""Base class of number fields. The class infers, reads and checks the columns of a number field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.list_encoder import ListEncoder, infer_values
from seqclf.data.schema.casts import TEXT_TYPES, bracketed_numbers, element_type, number, split_list
from seqclf.data.schema.cell_types import holds_missing, infer_elements
from seqclf.data.schema.problems import Problems, check_numbers
from seqclf.data.schema.schema import Field


class NumberColumn(ListEncoder):
    """A field with one number per token, or a vector of `width` numbers, from one column of vectors or several."""

    takes_several_columns = True
    filled = "mean"

    @cached_property
    def width(self) -> int:
        return self.field.width or 1

    @cached_property
    def missing_values(self) -> frozenset[float]:
        """Return the numbers of the option `missing_values`, each also as float32, where -99.9 is another number."""
        listed = [float(value) for value in self.option("missing_values")]
        with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
            rounded = [float(np.float32(value)) for value in listed]
        return frozenset([*listed, *(value for value in rounded if np.isfinite(value))])

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        if not events:
            return infer_elements(cells, separator)[0] in ("number", "vector")
        is_single = not pa.types.is_nested(cells.type)
        return is_single and (pa.types.is_floating(cells.type) or infer_values(cells) == "number")

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        return {"missing": "last"} if holds_missing(cells) else {}

    @classmethod
    def completed(cls, field: Field, cells: pa.ChunkedArray, events: bool) -> Field:
        width = 1 if events else infer_elements(cells, field.separator)[1]
        return replace(field, width=max(width, len(field.columns)))

    def describe(self) -> str:
        return ", ".join(filter(None, [f"{self.field.width} channels", super().describe()]))

    @property
    def depth(self) -> int:
        """Return the nesting depth of the lists in a cell: 2 for a list of vectors, otherwise 1."""
        return 2 if self.width > 1 and len(self.field.columns) == 1 else 1

    @property
    def element_type(self) -> pa.DataType:
        return pa.list_(pa.float64()) if self.width > 1 else pa.float64()

    @property
    def expected(self) -> str:
        return "a list of numbers" if self.width == 1 else f"a list of vectors of {self.width} numbers"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        """Return the canonical column, null if lists of several columns differ in length."""
        if self.field.static:
            return super().list_sql(types, where)
        lists = [self.column_sql(column, types[column], where) for column in self.field.columns]
        if len(lists) == 1:
            return lists[0]
        same_length = " AND ".join(f"len({other}) = len({lists[0]})" for other in lists[1:])
        vector = ", ".join(f"token[{position}]" for position in range(1, len(lists) + 1))
        return (
            f"CASE WHEN {same_length} THEN list_transform(list_zip({', '.join(lists)}), lambda token: [{vector}]) END"
        )

    def column_sql(self, name: str, kind: str, where: str) -> str:
        lists = super().column_sql(name, kind, where)
        if not self.missing_values:
            return lists
        has_separator = kind in ("VARCHAR", "JSON") and self.field.separator is not None
        is_deep = not has_separator and (self.depth > 1 if kind == "VARCHAR" else self._is_deep(kind))
        if not is_deep:
            return f"list_transform({lists}, lambda token: {self._known_sql('token')})"
        channels = f"list_transform(token, lambda channel: {self._known_sql('channel')})"
        return f"list_transform({lists}, lambda token: {channels})"

    def event_sql(self, column: str, kind: str, where: str) -> str:
        value = super().event_sql(column, kind, where)
        return self._known_sql(value) if self.missing_values else value

    def _known_sql(self, value: str) -> str:
        for missing in sorted(self.missing_values):
            value = f"NULLIF({value}, '{missing!r}'::DOUBLE)"
        return value

    def from_python(self, value: Any) -> Any:
        cell = super().from_python(value)
        if cell is None or not self.missing_values:
            return cell
        if self.width == 1:
            return [self._known(entry) for entry in cell]
        return [None if token is None else [self._known(entry) for entry in token] for token in cell]

    def element_from_python(self, entry: Any) -> Any:
        if isinstance(entry, timedelta):
            return entry.total_seconds()
        return float(entry) if isinstance(entry, Decimal) else entry

    def _known(self, entry: float | None) -> float | None:
        return None if entry in self.missing_values else entry

    def text_sql(self, cell: str) -> str:
        if self.field.separator is not None:
            return self.elements_sql(split_list(cell, self.field.separator), "VARCHAR[]")
        parsed = bracketed_numbers(cell, "DOUBLE" + "[]" * self.depth)
        if self.depth > 1:
            return parsed
        single = (
            f"list_transform(TRY_CAST({cell} AS DOUBLE[][]), lambda token: CASE WHEN len(token) = 1 THEN token[1] END)"
        )
        return f"CASE WHEN starts_with({cell}, '[[') THEN {single} ELSE {parsed} END"

    def elements_sql(self, column: str, kind: str) -> str:
        if kind == "VARCHAR[]" and self.field.separator is not None and self.may_miss:
            return f"list_transform({column}, lambda entry: {number('entry')})"
        return f"TRY_CAST({column} AS DOUBLE{'[][]' if self._is_deep(kind) else '[]'})"

    def _is_deep(self, kind: str) -> bool:
        """Return True if a column of the DuckDB type `kind` is read as lists of vectors."""
        return self.depth > 1 if kind.startswith("JSON") else element_type(kind).endswith("]")

    def value_sql(self, value: str, kind: str) -> str:
        return number(value) if kind in TEXT_TYPES else f"TRY_CAST({value} AS DOUBLE)"

    def parse_element(self, entry: Any) -> Any:
        try:
            return float(entry) if isinstance(entry, str) else entry
        except ValueError:
            return entry

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        check_numbers(elements, row_of_token, self.field, problems, may_miss=self.may_miss, finite_as=np.float32)

    def channel_names(self) -> list[str]:
        """Return the column name of each channel, such as `x[0]` in a column of vectors."""
        if len(self.field.columns) == self.width:
            return list(self.field.columns)
        return [f"{self.field.name}[{channel}]" for channel in range(self.width)]
