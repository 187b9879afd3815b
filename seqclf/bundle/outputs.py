"""Output of a prediction: one file, or a folder of Parquet files, on this machine or in an object store."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.bundle import row_writers
from seqclf.bundle.journal import journal_folder, own_journal
from seqclf.data.reading.object_store import delete_object, is_object_url, object_states, store_object
from seqclf.errors import InputError
from seqclf.system.atomic_files import explain_disk_errors, keep_mode, scratch_folder, write_bytes

PART_ROWS = 1_000_000
KEY = "output"
WRITTEN = "written.json"  # file of a journal


def check_output(output: str) -> None:
    """Raise InputError unless `output` names a file of a known format, an empty folder or a new folder.

    A path that ends with a slash names a folder. Commands call this function before they read the input.
    """
    is_remote = is_object_url(output)
    if not output.endswith("/"):
        row_writers.check_kind(output)
        if not is_remote:
            row_writers.check_output_path(Path(output))
    elif is_remote:
        if object_states(output, KEY) != _own_objects(output):
            raise InputError(f"{KEY}={output}", "holds objects, which would mix with the parts", "name another")
    elif (folder := Path(output)).exists() and not (folder.is_dir() and (_is_own(folder) or not any(folder.iterdir()))):
        raise InputError(f"{KEY}={output}", "is not an empty folder", "name a new one")


def _record(output: str, state: Any) -> None:
    """Write the state of what a command wrote into its journal, where the command that goes on finds it."""
    if journal_folder(output).is_dir():
        write_bytes(own_journal(output) / WRITTEN, json.dumps(state).encode())


def _recorded(output: str) -> Any:
    """Return the state that a killed command recorded, or None. What others may have written is not believed."""
    with suppress(OSError, ValueError, RecursionError):
        return json.loads((own_journal(output) / WRITTEN).read_bytes())
    return None


def _own_objects(output: str) -> dict[str, list[int]]:
    """Return the objects of the output, with their states, that a killed command stored and nobody changed."""
    known = _recorded(output)
    found = object_states(output, KEY) if isinstance(known, dict) else {}
    return {url: state for url, state in found.items() if known.get(url) == state}


def _is_own(folder: Path) -> bool:
    """Return True for the folder that a killed command wrote, if no file has been added to it or removed."""
    return bool(_recorded(str(folder)) == _folder_state(folder))


def _folder_state(folder: Path) -> list[int]:
    state = folder.stat()
    return [state.st_ino, state.st_mtime_ns]


@contextmanager
def open_output(output: str, schema: pa.Schema) -> Iterator[Any]:
    """Yield a writer with a method `write_batch`.

    The output is created at the end of the block. After an error in the block, no output is created.

    A folder gets the files `part-00000.parquet`, `part-00001.parquet`, …. Each file but the last has one million rows
    or slightly more.
    """
    if output.endswith("/"):
        with _open_remote_parts(output, schema) if is_object_url(output) else _open_parts(output, schema) as parts:
            yield parts
    elif is_object_url(output):
        with scratch_folder(Path(tempfile.gettempdir()), "output") as folder:
            file = folder / output.rpartition("/")[2]
            with row_writers.open_writer(file, schema) as writer:
                yield writer
            store_object(file, output, KEY)
    else:
        with row_writers.open_writer(Path(output), schema) as writer:
            yield writer


class _Parts:
    """Writes record batches to Parquet files, one after the other.

    `finish`: function that gets the path of each complete file.
    """

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
        if target.is_dir() and _is_own(target):  # complete, but the command was killed before it removed its journal
            for part in target.iterdir():
                part.unlink()
        _record(output, _folder_state(folder))
        folder.replace(target)


@contextmanager
def _open_remote_parts(output: str, schema: pa.Schema) -> Iterator[_Parts]:
    stored: list[str] = []

    def store(part: Path) -> None:
        url = f"{output}{part.name}"
        store_object(part, url, KEY)
        stored.append(url)
        _record(output, object_states(output, KEY))
        part.unlink()

    with scratch_folder(Path(tempfile.gettempdir()), "output") as folder:
        parts = _Parts(folder, schema, store)
        for url in _own_objects(output):  # parts of a command that was killed
            delete_object(url, KEY)
        try:
            yield parts
            parts.end_part()
        except BaseException:
            for url in stored:
                delete_object(url, KEY)
            raise
