"""Base of the field kinds whose cells are lists, a token per element."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.ragged import lengths_or_zero
from seqclf.data.schema.casts import is_nested, plain, quote_identifier, raw_column
from seqclf.data.schema.cell_types import (
    MAX_ODD_SHARE,
    infer_elements,
    is_missing,
    is_number,
    is_text,
    looks_bracketed,
    split_cell,
)
from seqclf.data.schema.problems import BLANK_REASON, Problems, true_rows
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError

BY_SPACES = "\"data.list_separator=' '\""  # quoted for the shell and for Hydra


class ListEncoder(FieldEncoder):
    """A field whose cells are lists of tokens, or in event tables the value of one token.

    A kind says how it reads the list of a text cell (`text_sql`), a list of DuckDB (`elements_sql`) and a value of an
    event (`value_sql`), how it checks elements that are not null (`check_elements`), and how it converts one element of
    a Python list (`element_from_python`).
    """

    inference_rank: ClassVar[int | None] = None  # kinds of low rank are tried first; None: never inferred

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        """Return True if a column that the config does not name looks like this kind.

        `separator`: of lists in text cells. `events`: a cell is one value, not a list.
        """
        return False

    @classmethod
    def inferred_options(cls, cells: pa.ChunkedArray) -> dict[str, Any]:
        """Return the options that an inferred column of an event table needs."""
        return {}

    @classmethod
    def complete(cls, field: Field, sample: pa.Table, list_separator: str | None, events: bool) -> Field:
        cells = sample.column(field.columns[0])
        options = dict(field.options)
        separator = options.pop("separator", None)
        if events:
            return cls.complete_event(replace(field, options=options), cells, separator or list_separator)
        if not is_text(cells.type):
            separator = None
        elif separator is None and not looks_bracketed(cells):
            # Bracketed lists are separated by commas, whatever data.list_separator says of others.
            separator = list_separator
        return cls.complete_list(replace(field, separator=separator, options=options), cells)

    @classmethod
    def complete_list(cls, field: Field, cells: pa.ChunkedArray) -> Field:
        """Return the field of a table with a row per sequence, whose `separator` is known."""
        return field

    @classmethod
    def complete_event(cls, field: Field, cells: pa.ChunkedArray, separator: str | None) -> Field:
        """Return the field of an event table. A cell is one value, unless the kind splits it by `separator`."""
        return field

    @property
    @abstractmethod
    def element_type(self) -> pa.DataType:
        """Type of a token in the canonical column."""

    @property
    def canonical_type(self) -> pa.DataType:
        return pa.list_(self.element_type)

    @property
    def may_miss(self) -> bool:
        """True if elements may be null."""
        return "missing" in self.options and self.option("missing") != "refuse"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        (column,) = self.field.columns
        return self.column_sql(column, types[column], where)

    def column_sql(self, name: str, kind: str, where: str) -> str:
        """The tokens of one column of DuckDB type `kind`. Raises InputError for a type that cannot hold them."""
        column = quote_identifier(name)
        if kind == "VARCHAR":
            return self.text_sql(f"NULLIF(trim({column}), '')")
        if kind == "JSON" and self.field.separator is not None:
            return self.text_sql(plain(name, kind))
        if kind == "JSON" or kind.startswith("JSON["):
            return self.elements_sql(f"to_json({column})", "JSON")
        if kind == '"NULL"':  # a column without a single value
            return self.elements_sql("NULL", kind)
        if not kind.endswith("]"):
            raise InputError(
                where,
                f"column '{name}' holds {kind}, not lists (data.fields.{self.field.name}={self.field.kind})",
                "a row must be one sequence: put each sequence's values into one list, name another column, or, if a "
                "row is one event, set data.group_by",
            )
        return self.elements_sql(column, kind)

    @abstractmethod
    def text_sql(self, cell: str) -> str:
        """SQL of the list in a text cell: split by the separator, or in brackets as JSON and DuckDB write it."""

    @abstractmethod
    def elements_sql(self, column: str, kind: str) -> str:
        """SQL of a list of DuckDB type `kind` (such as `DOUBLE[]`, `VARCHAR[]`, `JSON` or `"NULL"`) as tokens."""

    def event_sql(self, column: str, kind: str, where: str) -> str:
        if is_nested(kind):
            raise InputError(
                where,
                f"column '{column}' holds {kind}, but with data.group_by a row is one event of one value "
                f"(data.fields.{self.field.name}={self.field.kind})",
                "leave out data.group_by, or name another column",
            )
        return self.value_sql(plain(column, kind), kind)

    @abstractmethod
    def value_sql(self, value: str, kind: str) -> str:
        """SQL of one token from a value of DuckDB type `kind`, null where it is missing."""

    def from_python(self, value: Any) -> Any:
        if hasattr(value, "to_numpy") and not isinstance(
            value, (pa.Array, pa.ChunkedArray)
        ):  # a series or a frame of pandas or polars
            value = value.to_numpy()
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "M":  # as nanoseconds, times would become plain numbers
                value = value.astype("datetime64[us]")
            value = value.tolist()  # Python numbers, which `element_from_python` distinguishes
        if isinstance(value, str):
            raise ValueError("a text is not a list")  # Arrow would take it as a list of characters
        if isinstance(value, (list, tuple)):
            value = [self.element_from_python(entry) for entry in value]
        return pa.scalar(value, self.canonical_type).as_py()

    def element_from_python(self, entry: Any) -> Any:
        """Convert one element of a Python list, which may be None."""
        return entry

    def parse(self, text: str) -> Any:
        """Read tokens as JSON or as in the field's cells, or a mapping of several fields as JSON."""
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text)
            except ValueError as error:
                raise InputError(f"sequence={text}", f"is not JSON ({error})", "write {FIELD: [tokens], …}") from None
        separator = self.field.separator or (None if text.lstrip().startswith("[") else " ")
        return [self.parse_element(entry) for entry in split_cell(text.strip(), separator)]

    def parse_element(self, entry: Any) -> Any:
        """Convert one element that was typed on the command line."""
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
            can_miss = "missing" in self.options
            hint = f" (set data.fields.{self.field.name}.missing if values may be missing)" if can_miss else ""
            reason = f"has an element that is missing or does not belong in {self.expected}{hint}"
            problems.mark_tokens(true_rows(elements.is_null()), row_of_token, name, reason)
        self.check_elements(elements, row_of_token, problems)

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        """Mark rows with bad elements. `elements`: (S,) tokens of all rows. `row_of_token`: (S,)."""

    def _null_reasons(self, columns: pa.RecordBatch, rows: np.ndarray) -> list[str]:
        """A reason for each of the rows whose list is null: the cell was empty, or could not be cast."""
        if len(self.field.columns) > 1:
            return ["are empty, not lists of numbers, or lists of different lengths"] * len(rows)
        # Text cells are carried along as they were written, to be quoted here.
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
    """Return the type of cells of single values (see `infer_elements`), but for a few odd ones among numbers.

    A cell such as `err` or `<5` refuses its row when it is read, wherever it stands in the file.
    """
    values = cells.to_pylist()
    if is_text(cells.type):
        odd = {row for row, value in enumerate(values) if not is_missing(value) and not is_number(value)}
        if len(odd) <= MAX_ODD_SHARE * sum(not is_missing(value) for value in values):
            values = [value for row, value in enumerate(values) if row not in odd]
    # The whole column as one list: its values are inferred like those of a list column.
    return infer_elements(pa.chunked_array([pa.array([values])]), None)[0]


def parse_number(entry: Any) -> Any:
    """Convert a text that spells a number to it, and leave everything else as it is."""
    try:
        return float(entry) if isinstance(entry, str) else entry
    except ValueError:
        return entry
