"""Output of a prediction: one file, or a folder of Parquet files, on this machine or in an object store."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.bundle import row_writers
from seqclf.data.reading.object_store import delete_object, has_objects, location, scheme_of, store_object
from seqclf.errors import InputError
from seqclf.system.atomic_files import explain_disk_errors, keep_mode, scratch_folder

PART_ROWS = 1_000_000
KEY = "output"


def check_output(output: str) -> None:
    """Raise InputError unless `output` names a file of a known format, an empty folder or a new folder (with a slash).

    Commands call this function before they read the input.
    """
    if is_remote := scheme_of(output) is not None:
        location(output, KEY)
    if not output.endswith("/"):
        row_writers.check_kind(output)
        if not is_remote:
            row_writers.check_output_path(Path(output))
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
            with row_writers.open_writer(file, schema) as writer:
                yield writer
            store_object(file, output, KEY)
    else:
        with row_writers.open_writer(Path(output), schema) as writer:
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
