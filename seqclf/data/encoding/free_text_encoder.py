"""Base class of the field kinds whose cells are texts, which the encoder splits into tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.schema.casts import plain, spelled_sql
from seqclf.data.schema.problems import BLANK_REASON, Problems, true_rows
from seqclf.errors import InputError

MAX_CHARACTERS = 2**24  # a tokenizer needs 300 bytes for a character, and ends the process if it has no memory


class RunningTextEncoder(FieldEncoder):
    """A field whose cells are texts that the encoder splits into tokens.

    It must be the only field: another one would need a value per token, but tokens are known only after encoding.
    """

    holds_text = True

    @property
    def canonical_type(self) -> pa.DataType:
        return pa.string()

    @property
    def expected(self) -> str:
        return "a text"

    @property
    def remedy_for_lists(self) -> str:
        """Return the remedy that an error suggests if the column holds lists instead of texts."""
        return f"set data.fields.{self.field.name}=category or number"

    def list_sql(self, types: Mapping[str, str], where: str) -> str:
        (column,) = self.field.columns
        kind = types[column]
        if kind.endswith("]"):
            raise InputError(where, f"column '{column}' holds lists ({kind}), not text", self.remedy_for_lists)
        return f"CAST({spelled_sql(plain(column, kind), kind)} AS VARCHAR)"

    def from_python(self, value: Any) -> Any:
        return pa.scalar(value, pa.string()).as_py()

    def parse(self, text: str) -> Any:
        return text

    def check(self, columns: pa.RecordBatch, problems: Problems) -> None:
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(columns.column(self.field.name)), ""), True)
        problems.mark(true_rows(blank), self.field.column, BLANK_REASON)
        long = pc.greater(pc.utf8_length(columns.column(self.field.name)), MAX_CHARACTERS)
        problems.mark(true_rows(long), self.field.column, f"has more than {MAX_CHARACTERS:,} characters")
