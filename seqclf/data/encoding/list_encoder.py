"""Base class of the field kinds whose cells are lists with one element per token."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.ragged import lengths_or_zero, unmasked
from seqclf.data.schema.casts import is_nested, plain, quote_identifier, raw_column
from seqclf.data.schema.cell_types import (
    MAX_ODD_SHARE,
    Spelled,
    element_type_of,
    is_missing,
    is_number,
    is_text,
    looks_bracketed,
    split_cell,
)
from seqclf.data.schema.problems import BLANK_REASON, BY_SPACES, Problems, true_rows
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError


class ListEncoder(FieldEncoder):
    """A field whose cells are lists of tokens. In an event table, each cell is the value of one token.

    A subclass defines the SQL of a text cell with a list (`text_sql`), a DuckDB list (`elements_sql`) and the value of
    an event (`value_sql`). It may also define `check_elements` and `element_from_python`.
    """

    filled: ClassVar[str] = "value"  # value of the option `missing` that errors advise

    @classmethod
    @abstractmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        """Return True if a column that no config declares should become a field of this kind.

        `separator`: text between the elements of a text cell. `events`: True if a cell is one value and not a list.
        """

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        """Return the options of a field of this kind, inferred from the cells of a column in an event table."""
        return {}

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        cells = sample.column(field.columns[0])
        options = dict(field.options)
        separator = options.pop("separator", None)
        if events or not is_text(cells.type):
            separator = None
        elif separator is None and not looks_bracketed(cells):
            separator = list_separator
        return cls.completed(replace(field, separator=separator, options=options), cells, events)

    @classmethod
    def completed(cls, field: Field, cells: pa.ChunkedArray, events: bool) -> Field:
        """Return the field, whose `separator` is known, with properties inferred from its cells, such as their type.

        `events`: True if a cell is one value and not a list.
        """
        return field

    @property
    @abstractmethod
    def element_type(self) -> pa.DataType:
        """Return the Arrow type of a token in the canonical column."""

    @property
    def canonical_type(self) -> pa.DataType:
        return pa.list_(self.element_type)

    @property
    def may_miss(self) -> bool:
        return "missing" in self.options and self.option("missing") != "refuse"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        (column,) = self.field.columns
        if self.field.static:  # a list of one value
            return f"[{self.event_sql(column, types[column], where)}]"
        return self.column_sql(column, types[column], where)

    def column_sql(self, name: str, kind: str, where: str) -> str:
        """Return the SQL of the lists of tokens in a column of the DuckDB type `kind`. Raises InputError."""
        column = quote_identifier(name)
        if kind == "VARCHAR":
            return self.text_sql(f"NULLIF(trim({column}), '')")
        if kind == "JSON" and self.field.separator is not None:
            return self.text_sql(plain(name, kind))
        if kind == "JSON" or kind.startswith("JSON["):
            return self.elements_sql(f"to_json({column})", "JSON")
        if kind == '"NULL"':  # every cell of the column is null
            return self.elements_sql("NULL", kind)
        if not kind.endswith("]"):
            remedy = "put each sequence's values into one list, name another column, or, if a row is one event, set "
            problem = f"column '{name}' holds {kind}, not lists ({self.field.key}={self.field.kind})"
            raise InputError(where, problem, f"a row must be one sequence: {remedy}data.group_by")
        return self.elements_sql(column, kind)

    @abstractmethod
    def text_sql(self, cell: str) -> str:
        """Return SQL that converts a text cell to a list of tokens, in brackets or with the field's separator."""

    @abstractmethod
    def elements_sql(self, column: str, kind: str) -> str:
        """Return SQL of a list of tokens. `kind`: DuckDB type such as `DOUBLE[]`, `VARCHAR[]`, `JSON` or `"NULL"`."""

    def event_sql(self, column: str, kind: str, where: str) -> str:
        if is_nested(kind):
            static, remedy = self.field.static, "name another column"
            expected = "a static field is one value" if static else "with data.group_by a row is one event of one value"
            problem = f"column '{column}' holds {kind}, but {expected} ({self.field.key}={self.field.kind})"
            raise InputError(where, problem, remedy if static else f"leave out data.group_by, or {remedy}")
        return self.value_sql(plain(column, kind), kind)

    @abstractmethod
    def value_sql(self, value: str, kind: str) -> str:
        """Return SQL that converts an event's value of the DuckDB type `kind` to a token, null if it is missing."""

    def from_python(self, value: Any) -> Any:
        if self.field.static and np.ndim(value) == 0:  # else the value of each event, of which distinct ones are kept
            value = [value]
        value = unmasked(value)
        if getattr(getattr(value, "dtype", None), "time_zone", None):  # a series of polars, whose arrays have no zone
            value = value.to_list()
        if hasattr(value, "to_numpy") and not isinstance(value, (pa.Array, pa.ChunkedArray)):  # pandas or polars
            value = value.to_numpy()
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "M":  # tolist() would return times in nanoseconds as plain integers
                value = value.astype("datetime64[us]")
            value = value.tolist()  # `element_from_python` expects Python numbers, not numpy numbers
        if isinstance(value, str):
            raise ValueError("a text is not a list")  # Arrow would convert the text to a list of characters
        if isinstance(value, (list, tuple)):
            value = [self.element_from_python(entry) for entry in value]
        cell = pa.scalar(value, self.canonical_type).as_py()
        if cell and self.field.static:
            known = dict.fromkeys(entry for entry in cell if entry is not None and entry == entry)
            cell = list(known) or [None]
        return cell

    def plain_elements(self, cells: Sequence[Any], kinds: Collection[type]) -> tuple[np.ndarray, list[Any]] | None:
        """Return the (N,) lengths of Python cells, and all tokens end to end; None for other cells or other `kinds`."""
        if self.field.static:
            cells = [[cell] for cell in cells]
        cells = [cell.tolist() if isinstance(cell, np.ndarray) and cell.dtype.kind in "if" else cell for cell in cells]
        if not {*map(type, cells)} <= {list, tuple} or not all(cells):
            return None
        elements = list(chain.from_iterable(cells))
        return (np.array([*map(len, cells)], np.int64), elements) if {*map(type, elements)} <= {*kinds} else None

    def element_from_python(self, entry: Any) -> Any:
        """Convert one element of a Python list, which may be None, to a token."""
        return entry

    def parse(self, text: str) -> Any:
        """Parse a list of tokens in JSON or like a cell of the field, or a JSON object with lists of fields."""
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InputError(f"sequence={text}", f"is not JSON ({error})", 'write {"FIELD": [tokens], …}') from None
        separator = self.field.separator or (None if text.lstrip().startswith("[") else " ")
        return [self.parse_element(entry) for entry in split_cell(text.strip(), separator)]

    def parse_element(self, entry: Any) -> Any:
        """Convert one element of a list that was typed on the command line to a token."""
        return entry

    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        column, name = columns.column(self.field.name), self.field.column
        null_rows = true_rows(column.is_null())
        problems.mark(null_rows, name, self._null_reasons(columns, null_rows))
        lengths = lengths_or_zero(column)
        problems.mark(np.flatnonzero(lengths == 0), name, "has no tokens; a sequence needs at least one")
        elements = pc.list_flatten(column)
        row_of_token = np.repeat(np.arange(len(lengths)), lengths)
        if elements.null_count and not self.may_miss:
            hint = f" (set {self.field.key}.missing={self.filled} if values may be missing)"
            what = f"has an element that is missing or does not belong in {self.expected}"
            if self.field.static:
                what = "is missing or of another type than in training"
            reason = what + hint * ("missing" in self.options)
            problems.mark_tokens(true_rows(elements.is_null()), row_of_token, name, reason)
        self.check_elements(elements, row_of_token, problems)

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        """Call `problems.mark_tokens` for invalid (S,) `elements`. `row_of_token`: (S,) row of each token."""

    def _null_reasons(self, columns: pa.RecordBatch, rows: np.ndarray) -> list[str]:
        """Return one reason for each row in `rows`: the cell is empty or holds no list."""
        if len(self.field.columns) > 1:
            return ["are empty, not lists of numbers, or lists of different lengths"] * len(rows)
        # The reason quotes the original text of the cell, if the record batch has it.
        raw = raw_column(self.field.name)
        has_raw = raw in columns.schema.names
        texts = columns.column(raw).take(pa.array(rows)).to_pylist() if has_raw else [None] * len(rows)
        return [
            f"is not {self.expected}: '{text}'; write lists as [a, b], or name what separates them: {BY_SPACES}"
            if text is not None and text.strip()
            else BLANK_REASON
            for text in texts
        ]


def infer_values(cells: pa.ChunkedArray) -> str:
    """Return the element type of a column of single values (see `infer_elements`).

    A few texts among numbers, such as `err` or `<5`, are ignored here; their rows are rejected when the file is read.
    """
    values = cells.to_pylist()
    if is_text(cells.type):
        odd = {row for row, value in enumerate(values) if not is_missing(value) and not is_number(value)}
        if len(odd) <= MAX_ODD_SHARE * sum(not is_missing(value) for value in values):
            values = [value for row, value in enumerate(values) if row not in odd]
    return element_type_of([[Spelled(value) if isinstance(value, str) else value for value in values]])[0]
