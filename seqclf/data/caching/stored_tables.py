"""Tables in memory written to the cache, so that training reads them as it reads any file.

The name of a file is the hash of its content. So the same table is prepared once, and the path in a run's config.yaml
names exactly the rows that trained it. Only the user may read the files, as the prepared data next to them is encoded
and these are not.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.data.reading.record_batches import rebatch
from seqclf.data.reading.tables import Table
from seqclf.errors import InputError
from seqclf.system.atomic_files import explain_disk_errors, scratch_folder

FOLDER = "tables"
ROW_GROUP = 122_880  # rows: one row group of DuckDB


def store_table(table: Table, cache: Path, where: str) -> Path:
    """Write a table of `to_arrow` to a Parquet file in the cache, unless it is there. Returns the path.

    `where`: name of the table, for errors.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = store_table(pa.table({"x": [1]}), Path(folder), "data")
    ...     first == store_table(pa.table({"x": [1]}), Path(folder), "data"), first.suffix
    (True, '.parquet')
    """
    folder = cache / FOLDER
    with explain_disk_errors(folder), scratch_folder(folder, ".writing-") as scratch:
        unfinished = scratch / "table.parquet"
        _write(table, unfinished, where)
        with unfinished.open("rb") as file:
            name = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        path = folder / f"{name}.parquet"
        # A file that is there keeps its times, which the fingerprint of the prepared data holds.
        if not path.is_file() or path.stat().st_size != unfinished.stat().st_size:
            unfinished.chmod(0o600)
            unfinished.replace(path)
    return path


def _write(table: Table, path: Path, where: str) -> None:
    """Write row groups of a fixed size: the same rows give the same file, however they are cut."""
    record_batches = table.to_batches() if isinstance(table, pa.Table) else table
    rows = 0
    try:
        with pq.ParquetWriter(path, table.schema.remove_metadata(), compression="zstd") as writer:
            for record_batch in rebatch(record_batches, ROW_GROUP):
                rows += record_batch.num_rows
                writer.write_batch(record_batch, row_group_size=ROW_GROUP)
    except pa.ArrowException as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(where, f"cannot be written as Parquet ({reason})", "convert or drop the column") from None
    if not rows:
        raise InputError(where, "has no rows", "give a table with a row per sequence")
