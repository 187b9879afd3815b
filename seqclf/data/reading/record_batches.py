"""What reading gives: canonical columns of consecutive sequences, and where each came from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.cell_types import MISSING_WORDS


class Refusal(NamedTuple):
    """A row that cannot be used. `row` counts from 1 within `file`, the header not counted, among the rows that could
    be read at all; of a malformed line only its number, `line`, is known, and of a refused file neither. `events`: how
    many rows of an event table go with it."""

    file: str
    row: int | None
    column: str
    reason: str
    line: int | None = None
    events: int | None = None

    def __str__(self) -> str:
        where = [f"row {self.row}"] if self.row is not None else []
        where = [f"line {self.line}"] if self.line is not None else where
        return ": ".join([self.file, *where, f"{self.column} {self.reason}"])


class CanonicalBatch(NamedTuple):
    """Canonical columns of (N,) sequences of `file`, or of the (N,) `files` if there are several. `rows`: (N,) the row
    of each in its file, or of its first event; `event_rows`: (S,) the row of every step of an event table."""

    file: str
    rows: np.ndarray
    columns: pa.RecordBatch
    event_rows: np.ndarray | None = None
    files: pa.Array | None = None  # a folder of a text per file would make batches of one row

    def file_of(self, row: int) -> str:
        return self.file if self.files is None else self.files[row].as_py()


def as_text(ids: pa.Array) -> pa.Array:
    """Ids as they are written, whatever they are; NaN is none."""
    if pa.types.is_floating(ids.type):
        ids = pc.if_else(pc.is_nan(ids), pa.scalar(None, ids.type), ids)
    try:
        return ids.cast(pa.string())
    except pa.ArrowException:  # lists, bytes, intervals
        return pa.array([None if value is None else str(value) for value in ids.to_pylist()], pa.string())


def ids_or_null(ids: pa.Array) -> pa.Array:
    """Ids as text, null where one is missing: rows without an id share none.

    A blank counts as missing, and so do the words for it (NA, null, …) that files are written with.
    """
    words = pc.utf8_lower(pc.utf8_trim_whitespace(ids))
    return pc.if_else(pc.is_in(words, value_set=pa.array(MISSING_WORDS)), pa.scalar(None, pa.string()), ids)


def joined_key(columns: list[pa.Array]) -> pa.Array:
    """The id of rows that several columns make: their texts with a bar between; null only where all are."""
    if len(columns) == 1:
        return columns[0]
    texts = [as_text(column) for column in columns]
    joined = pc.binary_join_element_wise(*(pc.fill_null(text, "") for text in texts), " | ")
    missing = texts[0].is_null()
    for text in texts[1:]:
        missing = pc.and_(missing, text.is_null())
    return pc.if_else(missing, None, joined)
