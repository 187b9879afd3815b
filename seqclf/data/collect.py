"""Pass one over a source: refuse the bad rows, write the good ones to a file that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.encoders import Encoder
from seqclf.data.reading import reader
from seqclf.data.reading.casts import ID, KEY, LABEL, ROW
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.record_batches import CanonicalBatch, Refusal, as_text, ids_or_null
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.data.splitting.assignment import NO_KEY
from seqclf.data.splitting.duplicates import sequence_keys
from seqclf.data.splitting.policy import SplitInputs
from seqclf.data.storage.prefetch import prefetched
from seqclf.data.validation.quarantine import Quarantine
from seqclf.data.validation.row_checks import inspect
from seqclf.errors import InputError

FILE = "file number"  # no identifier, so no field is called like it


@dataclass
class Staged:
    """Accepted rows of one source: a file of staged columns, and what splitting needs of each of the (N,) rows.

    `contents`: uint64, equal where sequences are; `ids`: where they are more than row numbers, null where missing;
    `keys`: the time or the hash of the value in `data.split.column`, if it was read, NaN or NO_KEY where missing;
    `rows`: of the source, refused ones included; `events` of an event table likewise, `lost_events` those of malformed
    lines; `files`: the names that `file` counts.
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
        """The staged rows, in order; all columns, or those named."""
        # Read, not mapped: mapped pages would stay resident.
        with pa.OSFile(str(self.path)) as file:
            names = pa.ipc.open_file(file).schema.names
            options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns])
            reader = pa.ipc.open_file(file, options=options)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def check_columns(source: Source, schema: Schema, also: list[tuple[str, str]]) -> None:
    """Raise unless the source can be opened and has every column of the schema, and those of `also`, (key, column)."""
    wanted = [("data.label", schema.label), ("data.id", schema.id), *also, *schema.columns]
    named = [(key, column) for key, column in wanted if column is not None]
    require_columns(named, reader.column_types(source), str(source))


class _Stage:
    """The rows of one source as they come in."""

    def __init__(self, source: Source, schema: Schema, encoders: Mapping[str, Encoder], path: Path):
        self.source = source
        self.schema = schema
        self.encoders = encoders
        self.path = path
        self.writer: pa.RecordBatchFileWriter | None = None
        self.rows = self.events = 0
        self.labels: list[pa.Array] = []
        self.ids: list[pa.Array] = []
        self.contents: list[np.ndarray] = []
        self.keys: list[np.ndarray] = []
        self.refused: list[Refusal] = []
        self.files: dict[str, int] = {}  # name → number

    def add(self, batch: CanonicalBatch) -> list[Refusal]:
        """Write the good rows of a batch; gives the refusals of the others."""
        problems = inspect(batch.columns, self.schema)
        refusals = problems.refusals(batch)
        self.refused += refusals
        self.rows += len(batch.rows)
        self.events += 0 if batch.event_rows is None else len(batch.event_rows)
        columns, rows, files = batch.columns, batch.rows, self._numbers_of_files(batch)
        if refusals:
            usable = problems.usable
            columns, rows, files = columns.filter(pa.array(usable)), rows[usable], files[usable]
        staged = self._staged(columns, rows, files)
        if self.writer is None:
            self.writer = pa.ipc.new_file(str(self.path), staged.schema)
        self.writer.write_batch(staged)
        self.labels.append(staged.column(LABEL))
        if self.schema.id is not None or self.schema.group_by:
            self.ids.append(ids_or_null(staged.column(ID)))
        self.contents.append(sequence_keys(staged, self.encoders))
        if KEY in columns.schema.names:
            key = columns.column(KEY)
            known = key if pa.types.is_floating(key.type) else pc.fill_null(key, NO_KEY)
            self.keys.append(known.to_numpy(zero_copy_only=False))
        return refusals

    def _numbers_of_files(self, batch: CanonicalBatch) -> np.ndarray:
        """(N,) int32 places in `files`."""
        if batch.files is None:
            return np.full(len(batch.rows), self._number_of_file(batch.file), np.int32)
        encoded = batch.files.dictionary_encode()
        numbers = np.array([self._number_of_file(name) for name in encoded.dictionary.to_pylist()], np.int32)
        return numbers[encoded.indices.to_numpy()]

    def _number_of_file(self, name: str) -> int:
        return self.files.setdefault(name, len(self.files))

    def _staged(self, given: pa.RecordBatch, rows: np.ndarray, files: np.ndarray) -> pa.RecordBatch:
        """Label, staged fields (cut, with their lengths before that), and each row's `id` as text, number and file."""
        fields = {name: encoder.stage(given.column(name)) for name, encoder in self.encoders.items()}
        cut = self.schema.truncation.lists(pa.record_batch(fields), fields)
        columns = dict(zip(cut.schema.names, cut.columns, strict=True))
        row = pa.array(rows)
        ids = as_text(given.column(ID) if ID in given.schema.names else row)
        return pa.record_batch({LABEL: given.column(LABEL), **columns, ID: ids, ROW: row, FILE: pa.array(files)})


def stage(
    source: Source,
    schema: Schema,
    encoders: Mapping[str, Encoder],
    quarantine: Quarantine,
    path: Path,
    key: str | None,
    table: LabelTable | None,
) -> Staged:
    """Read a labelled source into `path`. `key`: SQL of what decides a row's split; `table`: where its labels are."""
    staged = _Stage(source, schema, encoders, path)
    malformed: list[Refusal] = []
    asked = schema if table is None else replace(schema, label=None)
    for batch in prefetched(reader.read(source, asked, key, malformed=malformed)):
        quarantine.add(staged.add(batch if table is None else labelled(batch, table)))
    quarantine.add(malformed)
    if schema.group_by:  # a line is an event; which group it belongs to nobody knows
        staged.events += len(malformed)
        quarantine.check_share(str(source), staged.events, malformed)
    else:
        staged.refused += malformed
        staged.rows += len(malformed)
    if staged.writer is None:
        why = f": {malformed[0]}" if malformed else ""
        raise InputError(f"{source}: has no rows{why}; give a file with a row per sequence")
    staged.writer.close()
    if len(staged.refused) == staged.rows:
        raise InputError(f"{staged.refused[0]} (all {staged.rows} rows of {source} are refused)")
    quarantine.check_share(str(source), staged.rows, staged.refused)
    ids = pa.chunked_array(staged.ids, pa.string()) if staged.ids else None
    return Staged(
        source,
        path,
        SplitInputs(
            pa.chunked_array(staged.labels, pa.string()),
            None if ids is None or _counts_rows(ids, staged.rows) else ids,
            np.concatenate(staged.contents),
            np.concatenate(staged.keys) if staged.keys else None,
        ),
        staged.rows,
        staged.events,
        staged.refused,
        len(malformed) if schema.group_by else 0,
        list(staged.files),
    )


def labelled(batch: CanonicalBatch, table: LabelTable) -> CanonicalBatch:
    """The batch with the label of each row, looked up by its id, and the split key if the table holds it."""
    labels, keys = table.look_up(as_text(batch.columns.column(ID)))
    columns = {name: batch.columns.column(name) for name in batch.columns.schema.names}
    columns[LABEL] = labels
    if keys is not None:
        columns[KEY] = keys
    return batch._replace(columns=pa.record_batch(columns))


def _counts_rows(ids: pa.ChunkedArray, rows: int) -> bool:
    """Whether ids do nothing but count the rows, from 0 or from 1 and with gaps at most where rows were refused or have
    none: such say nothing of identity."""
    try:
        numbers = ids.drop_null().cast(pa.float64()).to_numpy()  # a column with gaps is often written as 1.0, 2.0, …
    except pa.ArrowException:
        return False
    if not (np.floor(numbers) == numbers).all():
        return False
    return len(numbers) == 0 or (numbers[0] >= 0 and numbers[-1] <= rows and bool((np.diff(numbers) > 0).all()))
