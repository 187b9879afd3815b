"""Writers of record batches: Parquet, CSV, JSON lines or Arrow, each file written atomically."""

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
        # default=str: dates and binary ids have no JSON form.
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


def check_output(path: Path) -> None:
    """Raise InputError unless `path` can be written and its ending is known. Called before the work begins."""
    check_kind(str(path))
    check_output_path(path)


def check_kind(output: str) -> None:
    """Raise InputError unless the ending of a file's name is known."""
    if Path(output).suffix.lower() not in WRITERS:
        remedy = "end it in .parquet, .csv, .jsonl or .arrow, or in / for a folder of parts"
        raise InputError(f"output={output}", "unknown kind of file", remedy)


def check_output_path(path: Path) -> None:
    """Raise InputError unless a file can be created at `path`, with its folders."""
    if path.is_dir():
        raise InputError(f"output={path}", "is a folder", "name a file in it")
    if path.exists() and not path.is_file():  # the finished file would take the place of a FIFO or a device
        raise InputError(f"output={path}", "is not a regular file", "name another")
    # Missing folders are created later, so only the nearest existing one can be in the way.
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not parent.is_dir():
        raise InputError(f"output={path}", f"{parent} is not a folder", "name another")


@contextmanager
def open_writer(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Yield a writer with a method `write_batch`. `path` is replaced at the end, and untouched after an error."""
    check_output(path)
    open_file = WRITERS[path.suffix.lower()]
    try:
        with atomic_replace(path) as unfinished, closing(open_file(unfinished, schema)) as writer:
            yield writer
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"output={path}", f"cannot be written: {error}") from None
