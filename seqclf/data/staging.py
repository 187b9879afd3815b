"""Pass one over a source: refuse the bad rows, write the good ones to a file that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from seqclf.data import sources
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


def stage(source: Source, schema: Schema, quarantine: Quarantine, path: Path, key: str | None) -> Staged:
    """Read a labelled source into `path`. `key`: SQL of what decides a row's split."""
    wanted = [("data.label", schema.label), ("data.id", schema.id)]
    wanted += [(f"data.fields.{field.name}", field.column) for field in schema.fields]
    types = sources.column_types(source)
    require_columns([(name, column) for name, column in wanted if column is not None], types, str(source))
    rows, labels, keys, refused = 0, [], [], []
    writer = None
    for batch in sources.read(source, schema, key):
        numbers = np.arange(batch.first_row, batch.first_row + batch.columns.num_rows)
        problems = inspect(batch.columns, schema)
        refusals = problems.refusals(batch.file, numbers)
        quarantine.add(refusals)
        refused += refusals
        rows += batch.columns.num_rows
        kept = _canonical(batch, numbers, schema).filter(pa.array(problems.usable))
        if writer is None:
            writer = pa.ipc.new_file(str(path), kept.schema)
        writer.write_batch(kept)
        labels.append(kept.column("label"))
        if key is not None:
            keys.append(kept.column("key").to_numpy(zero_copy_only=False))
    if writer is None or rows == 0:
        raise InputError(f"{source}: has no rows; give a file with a row per sequence")
    writer.close()
    if len(refused) == rows:
        raise InputError(f"{refused[0]} (all {rows} rows of {source} are refused)")
    quarantine.check_share(str(source), rows, refused)
    merged = pa.chunked_array(labels, pa.string())
    return Staged(source, path, merged, np.concatenate(keys) if keys else None, rows, refused)


def _canonical(batch: sources.Batch, numbers: np.ndarray, schema: Schema) -> pa.RecordBatch:
    """The columns that are kept: label, fields, split key, and `_id`, `_row` and `_file` of each row."""
    given = batch.columns
    columns = {name: given.column(name) for name in ("label", *(field.name for field in schema.fields))}
    if "key" in given.schema.names:
        columns["key"] = given.column("key")
    row = pa.array(numbers)
    ids = given.column("id").cast(pa.string()) if schema.id is not None else row.cast(pa.string())
    return pa.record_batch({**columns, "_id": ids, "_row": row, "_file": pa.array([batch.file] * len(row))})
