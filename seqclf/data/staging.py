"""Pass one over a source: refuse the bad rows, write the good ones to a file that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from seqclf.data import sources
from seqclf.data.canonical import FILE, ID, KEY, LABEL, ROW
from seqclf.data.quarantine import Quarantine
from seqclf.data.rows import Refusal, inspect
from seqclf.data.schema import Schema, require_columns
from seqclf.data.sources import Source
from seqclf.errors import InputError


@dataclass
class Staged:
    """Accepted rows of one source: a file of canonical columns, and what splitting needs of each row."""

    source: Source
    path: Path
    labels: pa.ChunkedArray
    keys: np.ndarray | None
    rows: int
    refused: list[Refusal]

    def batches(self) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index)


def check_columns(source: Source, schema: Schema, also: list[tuple[str, str]]) -> None:
    """Raise unless the source can be opened and has every column of the schema, and those of `also`, (key, column)."""
    wanted = [("data.label", schema.label), ("data.id", schema.id), *also]
    wanted += [(f"data.fields.{field.name}", field.column) for field in schema.fields]
    named = [(key, column) for key, column in wanted if column is not None]
    require_columns(named, sources.column_types(source), str(source))


def stage(source: Source, schema: Schema, quarantine: Quarantine, path: Path, key: str | None) -> Staged:
    """Read a labelled source into `path`. `key`: SQL of what decides a row's split."""
    rows, labels, keys, refused = 0, [], [], []
    writer = None
    for batch in sources.read(source, schema, key):
        numbers = np.arange(batch.first_row, batch.first_row + batch.columns.num_rows)
        problems = inspect(batch.columns, schema)
        refusals = problems.refusals(batch.file, numbers)
        quarantine.add(refusals)
        refused += refusals
        rows += batch.columns.num_rows
        kept = _staged_columns(batch, numbers, schema).filter(pa.array(problems.usable))
        if writer is None:
            writer = pa.ipc.new_file(str(path), kept.schema)
        writer.write_batch(kept)
        labels.append(kept.column(LABEL))
        if key is not None:
            keys.append(kept.column(KEY).to_numpy(zero_copy_only=False))
    if writer is None:
        raise InputError(f"{source}: has no rows; give a file with a row per sequence")
    writer.close()
    if len(refused) == rows:
        raise InputError(f"{refused[0]} (all {rows} rows of {source} are refused)")
    quarantine.check_share(str(source), rows, refused)
    merged = pa.chunked_array(labels, pa.string())
    return Staged(source, path, merged, np.concatenate(keys) if keys else None, rows, refused)


def _staged_columns(batch: sources.Batch, numbers: np.ndarray, schema: Schema) -> pa.RecordBatch:
    """The columns that are kept: label, fields, split key, and each row's `id` as text, number and file."""
    given = batch.columns
    columns = {name: given.column(name) for name in (LABEL, *(field.name for field in schema.fields))}
    if KEY in given.schema.names:
        columns[KEY] = given.column(KEY)
    row = pa.array(numbers)
    ids = _as_text(given.column(ID) if schema.id is not None else row)
    return pa.record_batch({**columns, ID: ids, ROW: row, FILE: pa.repeat(batch.file, len(row))})


def _as_text(ids: pa.Array) -> pa.Array:
    try:
        return ids.cast(pa.string())
    except pa.ArrowException:  # lists, bytes, intervals
        return pa.array([None if value is None else str(value) for value in ids.to_pylist()], pa.string())
