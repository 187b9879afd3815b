"""Rows of a source as canonical columns, with the file and the row number of each row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.schema.casts import FILE, WEIGHT
from seqclf.errors import InputError

MAX_WEIGHT = 1e100  # squares of sums of weights are finite
ZEROS = r"(\.[0-9]*[1-9])0+$|\.0+$"  # at the end of a fraction
NO_IDS = ("-", "--", "unknown", "undefined", "0", "-1")  # placeholders for a missing id in files


class Refusal(NamedTuple):
    """A row that is rejected, and the reason, which follows the name of `column` in messages, such as `is empty`.

    `row`: number within `file` from 1, without header and malformed lines; None for a whole file or a malformed line,
    of the number `line`. `events`: rows of an event table that are rejected with their sequence.
    """

    file: str
    row: int | None
    column: str
    reason: str
    line: int | None = None
    events: int | None = None

    @property
    def where(self) -> str:
        if self.line is not None:
            return f"{self.file}: line {self.line}"
        return self.file if self.row is None else f"{self.file}: row {self.row}"

    def __str__(self) -> str:
        return f"{self.where}: {self.column} {self.reason}"

    def error(self, note: str = "") -> InputError:
        """Return the error that stops a command at this row. `note` follows the reason."""
        return InputError(self.where, f"{self.column} {self.reason}{note}")


class SourceRows(NamedTuple):
    """N consecutive sequences of a source, as canonical columns.

    `file`: file of all N sequences, unless `files`, (N,), is set. `row_numbers`: (N,) row number in the file, from 1,
    in an event table of the first event. `event_row_numbers`: (S,) row number of each token of an event table.
    """

    file: str
    row_numbers: np.ndarray
    columns: pa.RecordBatch
    event_row_numbers: np.ndarray | None = None
    files: pa.Array | None = None  # set if the rows come from several files

    @property
    def file_rows(self) -> int:
        return len(self.row_numbers if self.event_row_numbers is None else self.event_row_numbers)

    def file_of(self, row: int) -> str:
        return self.file if self.files is None else self.files[row].as_py()


def require_weights(name: str, values: pa.Array, rows: SourceRows, used: np.ndarray) -> None:
    """Raise InputError for a weight or cost (the canonical column `name`) that is no number of 0 to `MAX_WEIGHT`.

    `used`: (N,) bool, True for the rows that are checked.
    """
    numbers = values.to_numpy(zero_copy_only=False)
    if len(bad := np.flatnonzero(used & ~((numbers >= 0) & (numbers <= MAX_WEIGHT)))):
        row, option = int(bad[0]), "data.weight" if name == WEIGHT else "data.cost"
        shown = "no number" if np.isnan(numbers[row]) else f"{numbers[row]:g}"
        where = f"{rows.file_of(row)}: row {rows.row_numbers[row]}"
        raise InputError(where, f"the {name} is {shown} ({option})", f"give a number from 0 to {MAX_WEIGHT:g}")


def rebatch(record_batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Divide a stream of rows into record batches of exactly `rows` rows. Only the last record batch may be smaller.

    >>> parts = [pa.record_batch({"x": [1, 2, 3]}), pa.record_batch({"x": [4]}), pa.record_batch({"x": [5]})]
    >>> [batch["x"].to_pylist() for batch in rebatch(parts, 2)]
    [[1, 2], [3, 4], [5]]
    """
    pending: list[pa.RecordBatch] = []
    pending_rows = 0
    for record_batch in record_batches:
        while pending_rows + record_batch.num_rows >= rows:
            head = record_batch.slice(0, rows - pending_rows)
            yield pa.concat_batches([*pending, head]) if pending else head
            record_batch, pending, pending_rows = record_batch.slice(rows - pending_rows), [], 0
        if record_batch.num_rows:
            pending.append(record_batch)
            pending_rows += record_batch.num_rows
    if pending:
        yield pa.concat_batches(pending)


def number_rows(record_batches: Iterable[pa.RecordBatch], file: str, several_files: bool) -> Iterator[SourceRows]:
    """Number the rows of each file from 1. `file`: that of the first rows. `several_files`: True to read FILE."""
    next_row = 1
    for record_batch in record_batches:
        if not several_files:
            yield SourceRows(file, np.arange(next_row, next_row + record_batch.num_rows), record_batch)
            next_row += record_batch.num_rows
            continue
        # The rows of a file are consecutive, so run-end encoding finds the files without a loop over rows.
        files = record_batch.column(FILE)
        runs = pc.run_end_encode(files)
        run_ends = runs.run_ends.to_numpy()
        first_rows = np.ones(len(run_ends), np.int64)
        if runs.values[0].as_py() == file:  # the record batch starts with rows of the previous file
            first_rows[0] = next_row
        run_starts = np.append(0, run_ends[:-1])
        row_numbers = np.arange(record_batch.num_rows) + np.repeat(first_rows - run_starts, run_ends - run_starts)
        file, next_row = runs.values[-1].as_py(), int(row_numbers[-1]) + 1
        yield SourceRows(file, row_numbers, record_batch, files=files)


def as_text(ids: pa.Array) -> pa.Array:
    """Convert ids of any type to text, by the rules of `casts.spelled_sql`. NaN becomes null.

    >>> times = pa.array([1704153600, 1704153660]).cast(pa.timestamp("s"))
    >>> as_text(pa.array([100.0, 0.5, float("nan")])).to_pylist(), as_text(times).to_pylist()
    (['100', '0.5', None], ['2024-01-02', '2024-01-02 00:01:00'])
    """
    if pa.types.is_floating(ids.type):
        ids = pc.if_else(pc.is_nan(ids), pa.scalar(None, ids.type), ids).cast(pa.float64())
        is_whole = pc.and_(pc.equal(pc.floor(ids), ids), pc.less(pc.abs(ids), 2.0**53))
        return pc.if_else(is_whole, ids.cast(pa.int64(), safe=False).cast(pa.string()), ids.cast(pa.string()))
    if pa.types.is_decimal(ids.type):
        return pc.replace_substring_regex(ids.cast(pa.string()), ZEROS, r"\1")
    if pa.types.is_timestamp(ids.type):
        texts = ids.cast(pa.timestamp(ids.type.unit)).cast(pa.string())  # in UTC
        return pc.replace_substring_regex(pc.replace_substring_regex(texts, ZEROS, r"\1"), " 00:00:00$", "")
    try:
        return ids.cast(pa.string())
    except pa.ArrowException:  # Arrow cannot cast lists, bytes and intervals to text
        return pa.array([None if value is None else str(value) for value in ids.to_pylist()], pa.string())


def ids_or_null(ids: pa.Array) -> pa.Array:
    """Replace an id by null if it identifies nothing, such as blank text or unknown, which rows would share.

    >>> ids_or_null(pa.array(["a", " ", "NA", "unknown"])).to_pylist()
    ['a', None, 'NA', None]
    """
    return _without_words(ids, ("", *NO_IDS))


def _without_words(texts: pa.Array, words: Sequence[str]) -> pa.Array:
    found = pc.is_in(pc.utf8_lower(pc.utf8_trim_whitespace(texts)), value_set=pa.array(words))
    return pc.if_else(found, pa.scalar(None, texts.type), texts)


def _key_or_null(column: pa.Array) -> pa.Array:
    """Return a key column with null in place of NaN and blank text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    return _without_words(column, ("",)) if pa.types.is_string(column.type) else column


def joined_key(columns: list[pa.Array]) -> pa.Array:
    """Join the texts of key columns to one id, null if one is missing. Escaped separators keep different keys apart.

    >>> joined_key([pa.array([1, None, 2]), pa.array(["x", "y", " "])]).to_pylist()
    ['1 | x', None, None]
    """
    keys = [_key_or_null(column) for column in columns]
    if len(keys) == 1:
        return keys[0]
    texts = [pc.replace_substring_regex(as_text(key), r"([\\|])", r"\\\1") for key in keys]
    return pc.binary_join_element_wise(*texts, " | ", null_handling="emit_null")
