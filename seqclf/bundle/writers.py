"""Arrow batches → a file that appears only when it is whole: Parquet, CSV, JSON lines or Arrow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from seqclf.errors import InputError
from seqclf.system.atomic_files import atomic_replace


class _JsonLines:
    def __init__(self, path: Path):
        self.file = path.open("w", encoding="utf-8")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())

    def close(self) -> None:
        self.file.close()


def check_output(path: Path) -> None:
    """Raise now what would only come up after all the work."""
    if _kind(path) is None:
        raise InputError(f"output={path}: unknown kind of file; end it in .parquet, .csv, .jsonl or .arrow")
    check_output_path(path)


def check_output_path(path: Path) -> None:
    """Raise unless a file can be put there, its folders made on the way."""
    if path.is_dir():
        raise InputError(f"output={path}: is a folder; name a file in it")
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise InputError(f"output={path}: {above} is not a folder; name another")


def _kind(path: Path) -> str | None:
    kinds = {
        ".parquet": "parquet",
        ".csv": "csv",
        ".jsonl": "json",
        ".ndjson": "json",
        ".arrow": "arrow",
        ".feather": "arrow",
    }
    return kinds.get(path.suffix.lower())


@contextmanager
def open_sink(path: Path, schema: pa.Schema) -> Iterator[Any]:
    """Give a writer with `write_batch`; `path` is replaced at the end, and untouched if anything goes wrong."""
    check_output(path)
    opened = {
        "parquet": lambda unfinished: pq.ParquetWriter(unfinished, schema),
        "csv": lambda unfinished: arrow_csv.CSVWriter(unfinished, schema),
        "json": _JsonLines,
        "arrow": lambda unfinished: pa.ipc.new_file(str(unfinished), schema),
    }
    try:
        with atomic_replace(path) as unfinished, closing(opened[_kind(path) or ""](unfinished)) as writer:
            yield writer
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"output={path}: cannot be written: {error}") from None
