"""Atomic writers of record batches to Parquet, CSV, JSON lines or Arrow files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from seqclf.errors import InputError
from seqclf.system.atomic_files import atomic_replace


class _JsonLines:
    def __init__(self, path: Path, schema: pa.Schema):
        self.file = path.open("w", encoding="utf-8")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        # JSON has no type for dates and binary ids, so they are written as strings.
        self.file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())

    def close(self) -> None:
        self.file.close()


def _open_arrow(path: Path, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(str(path), schema)


WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".parquet": pq.ParquetWriter,
    ".csv": arrow_csv.CSVWriter,
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
}


def check_kind(output: str) -> None:
    """Raise InputError unless the suffix of a file name names a known format."""
    if Path(output).suffix.lower() not in WRITERS:
        remedy = "end it in .parquet, .csv, .jsonl or .arrow, or in / for a folder of parts"
        raise InputError(f"output={output}", "unknown kind of file", remedy)


def check_output_path(path: Path, *endings: str) -> None:
    """Raise InputError unless a file with one of `endings` (none: any) can be created at `path`."""
    if endings and path.suffix.lower() not in endings:
        raise InputError(f"output={path}", "unknown kind of file", f"end it in {' or '.join(endings)}")
    if path.exists() and not path.is_file():  # a FIFO or a device would be replaced by a regular file
        raise InputError(f"output={path}", "is not a regular file", "name another")
    # Missing folders are created later, so only the nearest existing parent has to be a folder.
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"output={path}", f"{parent} is not a folder", "name another")


@contextmanager
def open_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Yield a writer with a method `write_batch`. The file is replaced at the end of a block without an error."""
    open_file = WRITERS[path.suffix.lower()]
    try:
        with atomic_replace(path) as unfinished, closing(open_file(unfinished, schema)) as writer:
            yield writer
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"output={path}", f"cannot be written: {error}") from None
