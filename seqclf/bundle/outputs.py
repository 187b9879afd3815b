"""Output of a prediction: one file of any known format, or a folder of Parquet files, here or in an object store."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from seqclf.data.reading.object_store import delete_object, has_objects, location, scheme_of, store_object
from seqclf.errors import InputError
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors, keep_mode, scratch_folder


class _JsonLinesWriter:
    def __init__(self, path: Path, schema: pa.Schema):
        self.file = path.open("w", encoding="utf-8")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        # JSON has no type for dates and binary ids, so they are written as strings.
        self.file.writelines(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in batch.to_pylist())

    def close(self) -> None:
        self.file.close()


WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".parquet": pq.ParquetWriter,
    ".csv": arrow_csv.CSVWriter,
    ".jsonl": _JsonLinesWriter,
    ".ndjson": _JsonLinesWriter,
    ".arrow": pa.ipc.new_file,
    ".feather": pa.ipc.new_file,
}


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


PART_ROWS = 1_000_000
KEY = "output"


def check_output(output: str) -> None:
    """Raise InputError unless `output` names a file of a known format, or an empty or new folder (with a slash)."""
    if is_remote := scheme_of(output) is not None:
        location(output, KEY)
    if not output.endswith("/"):
        if Path(output).suffix.lower() not in WRITERS:
            remedy = "end it in .parquet, .csv, .jsonl or .arrow, or in / for a folder of parts"
            raise InputError(f"{KEY}={output}", "unknown kind of file", remedy)
        if not is_remote:
            check_output_path(Path(output))
    elif is_remote:
        if has_objects(output, KEY):
            problem = "holds objects, which would mix with the parts"
            raise InputError(f"{KEY}={output}", problem, "name another, or remove those of a command that was killed")
    elif (folder := Path(output)).exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise InputError(f"{KEY}={output}", "is not an empty folder", "name a new one")


@contextmanager
def open_output(output: str, schema: pa.Schema) -> Iterator[Any]:
    """Yield a writer with a method `write_batch`. The output is created at the end of the block, if there is no error.

    A folder gets the files `part-00000.parquet`, `part-00001.parquet`, …, of one million rows or slightly more.
    """
    if output.endswith("/"):
        with _open_remote_parts(output, schema) if scheme_of(output) else _open_parts(output, schema) as parts:
            yield parts
    elif scheme_of(output):
        with scratch_folder(Path(tempfile.gettempdir()), "output") as folder:
            file = folder / output.rpartition("/")[2]
            with open_writer(file, schema) as writer:
                yield writer
            store_object(file, output, KEY)
    else:
        with open_writer(Path(output), schema) as writer:
            yield writer


class _Parts:
    """`finish`: function that gets the path of each complete file."""

    def __init__(self, folder: Path, schema: pa.Schema, finish: Callable[[Path], None]):
        self.folder, self.schema, self.finish = folder, schema, finish
        self.count = self.rows = 0
        self.writer: pq.ParquetWriter | None = None

    @property
    def path(self) -> Path:
        return self.folder / f"part-{self.count:05d}.parquet"

    def write_batch(self, batch: pa.RecordBatch) -> None:
        if self.writer is None:
            self.writer = pq.ParquetWriter(self.path, self.schema)
        self.writer.write_batch(batch)
        self.rows += batch.num_rows
        if self.rows >= PART_ROWS:
            self.end_part()

    def end_part(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.finish(self.path)
            self.writer, self.rows = None, 0
            self.count += 1


@contextmanager
def _open_parts(output: str, schema: pa.Schema) -> Iterator[_Parts]:
    target = Path(output).absolute()
    with explain_disk_errors(target), scratch_folder(target.parent, f"{target.name}-") as scratch:
        folder = scratch / "parts"
        folder.mkdir()
        keep_mode(target, folder)
        parts = _Parts(folder, schema, lambda _: None)
        yield parts
        parts.end_part()
        folder.replace(target)


@contextmanager
def _open_remote_parts(output: str, schema: pa.Schema) -> Iterator[_Parts]:
    stored: list[str] = []

    def store(part: Path) -> None:
        url = f"{output}{part.name}"
        store_object(part, url, KEY)
        stored.append(url)
        part.unlink()

    with scratch_folder(Path(tempfile.gettempdir()), "output") as folder:
        parts = _Parts(folder, schema, store)
        try:
            yield parts
            parts.end_part()
        except BaseException:
            for url in stored:
                delete_object(url, KEY)
            raise
