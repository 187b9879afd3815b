"""First pass over a source. The pass rejects bad rows, and stages good rows in a file that can be read repeatedly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.encoding.row_checks import check_rows
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import COST, GROUP, GROUP_NAME, ID, LABEL, ROW, TIME, TIME_END, WEIGHT
from seqclf.data.schema.problems import Quarantine
from seqclf.data.schema.rows import Refusal, SourceRows, as_text, ids_or_null, require_weights
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.data.splitting.assignment import NO_KEY
from seqclf.data.splitting.policies import SplitInputs, sequence_keys
from seqclf.data.storage.prefetch import prefetched
from seqclf.data.storage.store import text_columns
from seqclf.errors import InputError
from seqclf.system import progress

FILE = "file number"  # the space prevents a clash with field names


@dataclass(frozen=True)
class Staged:
    """Rows of one source that passed the checks, on disk until they are encoded.

    `rows`: rows in the source, with rejected ones. `events`: events of an event table, with rejected ones, else 0.
    `lost_events`: events on malformed lines, whose group is unknown. `files`: names of the files by their FILE number.
    """

    source: Source
    path: Path
    split_inputs: SplitInputs
    rows: int
    events: int
    refused: list[Refusal]
    lost_events: int
    files: list[str]

    def batches(self, *columns: str) -> Iterator[pa.RecordBatch]:
        """Stream the staged rows in their order. If no `columns` are given, all columns are read."""
        # The file is not memory-mapped, because the mapped pages would stay in memory.
        with pa.OSFile(str(self.path)) as file:
            names = pa.ipc.open_file(file).schema.names
            options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
            reader = pa.ipc.open_file(file, options=options)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


class ExcludedRows:
    """Ids of rows to leave out, one a line of a UTF-8 file. `path`: None for none. Raises InputError for no file."""

    def __init__(self, path: str | None):
        self.key = f"data.exclude={path}"
        try:
            text = "" if path is None else Path(path).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(self.key, f"cannot be read ({error})", "give a UTF-8 text, one id a line") from None
        self.ids = pa.array(dict.fromkeys(line for line in text.split("\n") if line.strip()), pa.string())
        self.found = np.zeros(len(self.ids), bool)

    def others(self, columns: pa.RecordBatch) -> np.ndarray:
        """Return True (N,) for the rows of canonical columns that are kept."""
        if not len(self.ids):
            return np.ones(columns.num_rows, bool)
        places = pc.index_in(as_text(columns.column(ID)), value_set=self.ids)
        self.found[places.drop_null()] = True
        return places.is_null().to_numpy(zero_copy_only=False)

    def require_found(self) -> None:
        """Raise InputError if an id is that of no row."""
        if lost := self.ids.filter(pa.array(~self.found)).to_pylist():
            raise InputError(self.key, f"{len(lost)} ids are of no row, such as '{lost[0]}'", "correct or remove them")


def check_columns(reader: SourceReader, schema: Schema, also: list[tuple[str, str]]) -> None:
    """Raise InputError if the source lacks a column of the schema or of `also`, a list of (option, column)."""
    named = [("data.label", schema.label), ("data.id", schema.id), *also, *schema.columns]
    required = [(option, column) for option, column in named if column is not None]
    require_columns(required, reader.column_types, str(reader.source))


def collect(
    reader: SourceReader,
    schema: Schema,
    encoders: Mapping[str, FieldEncoder],
    quarantine: Quarantine,
    path: Path,
    keys: Mapping[str, str],
    label_table: LabelTable | None,
    excluded: ExcludedRows,
    *,
    keep_texts: bool = False,
) -> Staged:
    """Read all rows of a source, and stage the good rows in a new file at `path`.

    `keys`: dict canonical column → SQL expression for the time or the group of a row. `keep_texts`: True to stage the
    original texts too (see `storage.store.text_columns`). Raises InputError if there are no rows, or too many bad ones.
    """
    staging = _Staging(schema, encoders, path, keep_texts)
    read_schema = schema if label_table is None else label_table.without_joined(schema, reader.column_types.keys())
    unit = "events" if schema.group_by else "rows"
    with (
        progress.stage(f"reading {reader.source.short_name}", total=reader.stored_rows(), unit=unit) as reading,
        # The prefetching thread must end before another thread uses or closes the reader.
        closing(prefetched(reader.read(read_schema, keys))) as stream,
    ):
        for rows in stream:
            quarantine.add(staging.add(rows if label_table is None else label_table.labelled(rows), excluded))
            reading.advance(rows.file_rows)
    quarantine.add(reader.malformed)
    source, lost_events = reader.source, 0
    if schema.group_by:  # each line of an event table is one event
        lost_events = len(reader.malformed)
        staging.events += lost_events
        quarantine.check_share(str(source), staging.events, reader.malformed)
    else:
        staging.refused += reader.malformed
        staging.rows += len(reader.malformed)
    if staging.writer is None:
        raise no_rows(source, f": {reader.malformed[0]}" if reader.malformed else "")
    staging.writer.close()
    if len(staging.refused) == staging.rows:
        raise staging.refused[0].error(f" (all {staging.rows} rows of {source} are refused)")
    quarantine.check_share(str(source), staging.rows, staging.refused)
    counts = (staging.rows, staging.events, staging.refused, lost_events)
    if not len((inputs := staging.split_inputs()).labels):
        raise InputError(source, f"no row is left ({excluded.key})", "exclude fewer rows")
    return Staged(source, path, inputs, *counts, list(staging.file_numbers))


class _Staging:
    def __init__(self, schema: Schema, encoders: Mapping[str, FieldEncoder], path: Path, keep_texts: bool):
        self.schema = schema
        self.encoders = encoders
        self.path = path
        self.keep_texts = keep_texts
        self.writer: pa.RecordBatchFileWriter | None = None
        self.rows = self.events = 0
        self.refused: list[Refusal] = []
        self.file_numbers: dict[str, int] = {}
        self._labels: list[pa.Array] = []
        self._ids: list[pa.Array] = []
        self._content_keys: list[np.ndarray] = []
        self._keys: defaultdict[str, list[np.ndarray]] = defaultdict(list)  # canonical column → times or groups of rows

    def add(self, rows: SourceRows, excluded: ExcludedRows) -> list[Refusal]:
        """Stage the good rows, and return the refusals of the bad rows."""
        problems, kept = check_rows(rows.columns, self.schema, self.encoders), excluded.others(rows.columns)
        for row in np.flatnonzero(~kept).tolist():  # a row that is left out has no problem
            problems.first_problems.pop(row, None)
        usable = problems.usable & kept
        for name in (WEIGHT, COST):
            if name in rows.columns.schema.names:
                require_weights(name, rows.columns.column(name), rows, usable)
        refusals = problems.refusals(rows)
        self.refused += refusals
        self.rows += len(rows.row_numbers)
        self.events += 0 if rows.event_row_numbers is None else len(rows.event_row_numbers)
        columns, row_numbers, file_numbers = rows.columns, rows.row_numbers, self._numbers_of_files(rows)
        if not usable.all():
            columns = columns.filter(pa.array(usable))
            row_numbers, file_numbers = row_numbers[usable], file_numbers[usable]
        staged = self._staged_columns(columns, row_numbers, file_numbers)
        if self.writer is None:  # the schema of the staged columns is known only when the first rows are read
            self.writer = pa.ipc.new_file(str(self.path), staged.schema)
        self.writer.write_batch(staged)
        self._labels.append(staged.column(LABEL))
        if self.schema.id is not None or self.schema.group_by:
            self._ids.append(ids_or_null(staged.column(ID)))
        self._content_keys.append(sequence_keys(staged, self.encoders))
        for name in (TIME, TIME_END, GROUP):
            if name in columns.schema.names:
                values = columns.column(name)
                # `to_numpy` turns a missing time into NaN.
                filled = pc.fill_null(values, NO_KEY) if name == GROUP else values
                self._keys[name].append(filled.to_numpy(zero_copy_only=False))
        return refusals

    def split_inputs(self) -> SplitInputs:
        labels, content_keys = pa.chunked_array(self._labels, pa.string()), np.concatenate(self._content_keys)
        ids = pa.chunked_array(self._ids, pa.string()) if self._ids else None
        count_rows = ids is None or _counts_rows(ids, self.rows)
        keys = {name: np.concatenate(parts) for name, parts in self._keys.items()}
        return SplitInputs(labels, ids, content_keys, count_rows, *map(keys.get, (TIME, TIME_END, GROUP)))

    def _numbers_of_files(self, rows: SourceRows) -> np.ndarray:
        """A file that is not in `file_numbers` yet gets the next number."""
        if rows.files is None:
            return np.full(len(rows.row_numbers), self._file_number(rows.file), np.int32)
        encoded = rows.files.dictionary_encode()
        numbers = np.array([self._file_number(name) for name in encoded.dictionary.to_pylist()], np.int32)
        return numbers[encoded.indices.to_numpy()]

    def _file_number(self, name: str) -> int:
        return self.file_numbers.setdefault(name, len(self.file_numbers))

    def _staged_columns(
        self, columns: pa.RecordBatch, row_numbers: np.ndarray, file_numbers: np.ndarray
    ) -> pa.RecordBatch:
        fields = {name: encoder.stage(columns.column(name)) for name, encoder in self.encoders.items()}
        # Lists are truncated before they are staged, so that encoders are fit only on the tokens that are kept.
        truncated = self.schema.truncation.cut_lists(pa.record_batch(fields), tokens_of(self.encoders))
        row = pa.array(row_numbers)
        staged = {
            LABEL: columns.column(LABEL),
            **dict(zip(truncated.schema.names, truncated.columns, strict=True)),
            **(text_columns(columns, fields, self.encoders) if self.keep_texts else {}),
            ID: as_text(columns.column(ID) if ID in columns.schema.names else row),
            ROW: row,
            FILE: pa.array(file_numbers),
            **{name: columns.column(name) for name in (GROUP_NAME, WEIGHT, COST) if name in columns.schema.names},
        }
        return pa.record_batch(staged)


def _counts_rows(ids: pa.ChunkedArray, rows: int) -> bool:
    """Gaps are fine (rejected rows, no id). Row numbers identify nothing: number 1 of two files is two sequences."""
    try:
        numbers = ids.drop_null().cast(pa.float64()).to_numpy()  # integers with nulls are often written as 1.0, 2.0, …
    except pa.ArrowException:
        return False
    if not (np.floor(numbers) == numbers).all():
        return False
    return len(numbers) == 0 or (numbers[0] >= 0 and numbers[-1] <= rows and bool((np.diff(numbers) > 0).all()))
