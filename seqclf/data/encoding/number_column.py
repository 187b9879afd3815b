"""Columns of numbers: how the channels of a number field are inferred, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoder import NO_ENCODERS, FieldEncoder
from seqclf.data.encoding.list_encoder import ListEncoder, infer_values, parse_number
from seqclf.data.schema.casts import TEXT_TYPES, bracketed_numbers, element_type, number, split_list
from seqclf.data.schema.cell_types import infer_elements, names_missing
from seqclf.data.schema.problems import Problems, check_numbers
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION, Truncation


class NumberColumn(ListEncoder):
    """A number, or a vector of `width` numbers, per token. Its channels are in one column or in several."""

    takes_several_columns = True
    inference_rank = 30

    def __init__(
        self,
        field: Field,
        others: Mapping[str, FieldEncoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.width = field.width or 1

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        if not events:
            return infer_elements(cells, separator)[0] in ("number", "vector")
        is_single = not pa.types.is_nested(cells.type)
        return is_single and (pa.types.is_floating(cells.type) or infer_values(cells) == "number")

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        return {"missing": "last"} if cells.null_count or names_missing(cells) else {}

    @classmethod
    def complete_list(cls, field: Field, cells: pa.ChunkedArray) -> Field:
        _, width = infer_elements(cells, field.separator)
        return replace(field, width=max(width, len(field.columns)))

    @classmethod
    def complete_event(cls, field: Field, cells: pa.ChunkedArray, separator: str | None) -> Field:
        return replace(field, width=len(field.columns))

    def describe(self) -> str:
        return ", ".join(filter(None, [f"{self.field.width} channels", super().describe()]))

    @property
    def depth(self) -> int:
        """Nesting of the lists in a cell: 2 for a list of vectors, else 1."""
        return 2 if self.width > 1 and len(self.field.columns) == 1 else 1

    @property
    def element_type(self) -> pa.DataType:
        return pa.list_(pa.float64()) if self.width > 1 else pa.float64()

    @property
    def expected(self) -> str:
        return "a list of numbers" if self.width == 1 else f"a list of vectors of {self.width} numbers"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        """See `FieldEncoder`. Several columns become one list of vectors, null unless their lists are equally long."""
        lists = [self.column_sql(column, types[column], where) for column in self.field.columns]
        if len(lists) == 1:
            return lists[0]
        same_length = " AND ".join(f"len({other}) = len({lists[0]})" for other in lists[1:])
        vector = ", ".join(f"token[{position}]" for position in range(1, len(lists) + 1))
        return (
            f"CASE WHEN {same_length} THEN list_transform(list_zip({', '.join(lists)}), lambda token: [{vector}]) END"
        )

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
        is_deep = self.depth > 1 if kind == "JSON" else element_type(kind).endswith("]")
        return f"TRY_CAST({column} AS DOUBLE{'[][]' if is_deep else '[]'})"

    def value_sql(self, value: str, kind: str) -> str:
        return number(value) if kind in TEXT_TYPES else f"TRY_CAST({value} AS DOUBLE)"

    def parse_element(self, entry: Any) -> Any:
        return parse_number(entry)

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        # Finite as float32, which the model gets.
        check_numbers(elements, row_of_token, self.field, problems, may_miss=self.may_miss, finite_as=np.float32)

    def channel_names(self) -> list[str]:
        """Return the column of each channel, or indexed names if one column holds vectors."""
        if len(self.field.columns) == self.width:
            return list(self.field.columns)
        return [f"{self.field.name}[{channel}]" for channel in range(self.width)]
