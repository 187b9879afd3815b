"""Journal of a prediction: the results of its finished windows, so that a killed command goes on where it was.

The journal is a hidden folder beside the output. A file of the journal holds the results of one window. It is renamed
when it is complete, but not flushed to the disk, because a killed process loses nothing that it wrote. After a power
failure a file may be damaged. Its digest tells, and the command predicts from there again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa

from seqclf.bundle.limits import LimitError
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Counts, Result
from seqclf.bundle.rows.windows import PredictWindows, Window
from seqclf.bundle.training_memory import RowSample, SampledRows
from seqclf.data.reading.object_store import is_object_url
from seqclf.data.reading.sources import Source, cache_folder, source_state
from seqclf.documents.terminal import show_note
from seqclf.errors import InputError
from seqclf.system import progress
from seqclf.system.atomic_files import explain_disk_errors, keep_mode, scratch_folder, write_bytes
from seqclf.system.run_folder import LOCK, locked
from seqclf.system.state_validation import read_json
from seqclf.system.version import __version__

RUN, WINDOW = "run.json", ".window"
DIGEST_BYTES = 32
SAMPLED = "sampled "  # beginning of the names of a sample's columns in a file


def journal_folder(output: str) -> Path:
    """Return the folder of the journal: beside the output, or in the cache folder if the output is in a store."""
    if is_object_url(output):
        name = hashlib.sha256(output.encode()).hexdigest()[:16]
        return Path(cache_folder()).expanduser() / "seqclf-journals" / name
    path = Path(output).absolute()
    # A name like `.seqclf-…` could match the names of temporary files, which the next command deletes.
    return path.with_name(f".seqclf.{path.name}.journal")


def own_journal(output: str) -> Path:
    """Return the folder of a journal. Raises InputError if others may write to it, or OSError if there is none.

    A new folder beside it shows owner and mode of a folder of this user. Some file systems and Windows keep neither.
    """
    folder = journal_folder(output)
    found = folder.lstat()
    with scratch_folder(folder.parent, "journal-") as new:
        own = new.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != own.st_uid or found.st_mode & ~own.st_mode & 0o022:
            problem = "belongs to another user, or others may write to it"
            raise InputError(folder, problem, "remove it, or write to another folder")
        keep_mode(new, folder)
    return folder


def run_identity(classifier: BundleModel, source: Source, by_field: bool | None, engine: str) -> dict[str, str]:
    """Return digests of all that the results depend on: of the input, of the bundle and of the options.

    The number of threads is not part of it, because it changes no digit (see `BatchLimits`). The execution provider is,
    and so is `engine`, which names the device of Ray's actors.
    """
    state = source_state(source)
    files = [(file.path, file.size, file.modified_ns, file.inode_changed_ns) for file in state.files]
    versions = __version__, onnxruntime.__version__
    decision = classifier.decision.to_dict(), classifier.budget
    parts = {
        "input": (source.path, files),
        "bundle": classifier.manifest["digest"],
        "options": (state.options[1:], decision, by_field, engine, classifier.provider, versions),
    }
    return {name: hashlib.sha256(json.dumps(part).encode()).hexdigest() for name, part in parts.items()}


@contextmanager
def open_journal(output: str, identity: Mapping[str, str], sample: RowSample) -> Iterator[Journal]:
    """Hold the journal of an output, which is removed at the end of the `with` block.

    After an error in the block other than LimitError, a journal with windows is left. Raises InputError if another
    process holds it, or if others may write to it.
    """
    folder = journal_folder(output)
    made = [folder, *(path for path in folder.parents if not path.exists())]
    with explain_disk_errors(folder):
        if folder.is_symlink() or folder.is_file():  # the files of another folder would be changed
            folder.unlink()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process has just removed it
            own_journal(output)
    try:
        with locked(folder, f"output={output}", "this output"):
            with explain_disk_errors(folder):
                journal = Journal(own_journal(output), identity, sample)  # nobody can replace a folder with a lock
            try:
                yield journal
            except BaseException as error:
                if not isinstance(error, LimitError) and any(folder.glob(f"*{WINDOW}")):
                    show_note(f"the same command goes on after its finished windows, which are in {folder}")
                    raise
                _clear(folder, lambda _: True)
                raise
            _clear(folder, lambda _: True)
    finally:
        with suppress(OSError):  # a folder is not empty, or another process has begun
            for path in made:
                path.rmdir()


def _clear(folder: Path, is_removed: Callable[[Path], bool]) -> None:
    """Remove files and folders from a journal, but not its lock, which this process holds."""
    with explain_disk_errors(folder):
        for path in folder.iterdir():
            if path.name != LOCK and is_removed(path):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


class Journal:
    """Results of the finished windows of a run, in a folder that this process has locked.

    `identity`: see `run_identity`. The results of another identity are removed, and a line says what differs.
    `sample`: sample to which the windows add rows. `rows`: number of rows whose results were read from the folder.
    """

    def __init__(self, folder: Path, identity: Mapping[str, str], sample: RowSample):
        self.folder, self.identity, self.sample = folder, dict(identity), sample
        self.rows = self.count = 0  # `count`: number of windows that are in the folder
        # A link would lead to another file, and a FIFO would wait.
        _clear(folder, lambda path: not stat.S_ISREG(path.lstat().st_mode))
        known: Any = None
        with suppress(OSError, ValueError):
            known = read_json(folder / RUN)
        if known == self.identity:
            return
        stale = [*folder.glob(f"*{WINDOW}")]
        if stale:
            before = known if isinstance(known, dict) else {}
            changed = [name for name, digest in identity.items() if before.get(name) != digest]
            show_note(f"starts afresh: {' and '.join(changed)} changed since the command was killed")
        with explain_disk_errors(folder):
            for path in stale:
                path.unlink()
            write_bytes(folder / RUN, json.dumps(self.identity).encode())

    def results(self, windows: Iterable[Window], predict: PredictWindows) -> Iterator[Result]:
        """Yield the results of all windows: first those in the folder, then those of `predict`, which are stored."""
        coming = iter(windows)
        rest: list[Window] = []  # the first window that is not in the folder
        for window in coming:
            if (stored := self._read(self._key(window))) is None:
                rest.append(window)
                break
            yield from stored
            self.rows += window.columns.num_rows
            self.count += 1
        if self.rows:
            progress.skip()
            show_note(f"goes on after {self.rows:,} rows")
        keys = deque[str]()

        def remembered() -> Iterator[Window]:
            for window in itertools.chain(rest, coming):
                keys.append(self._key(window))
                yield window

        drawn = self.sample.drawn
        for results in predict(remembered()):
            self._write(keys.popleft(), results, self.sample.added_since(drawn))
            drawn = self.sample.drawn
            yield from results

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.count:08d}{WINDOW}"

    def _key(self, window: Window) -> str:
        """Return a digest of the run, and of the place, the first and the last row of a window.

        The rows tell if the input gives its rows in another order than before, as a query may.
        """
        columns = window.columns
        ends = columns.take(pa.array([0, columns.num_rows - 1])).to_pylist()
        text = repr((sorted(self.identity.items()), window.first_row, columns.num_rows, ends))
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    def _write(self, key: str, results: list[Result], sampled: SampledRows) -> None:
        tables = pa.BufferOutputStream()
        with pa.ipc.new_stream(tables, results[0].table.schema) as writer:
            for result in results:
                writer.write_batch(result.table)
        content = io.BytesIO(bytes(DIGEST_BYTES))
        content.seek(DIGEST_BYTES)
        arrays: dict[str, Any] = {f"{SAMPLED}{name}": column for name, column in sampled.columns.items()}
        arrays |= {"key": key, "rate": sampled.rate, "drawn": sampled.drawn}
        arrays["counts"] = [result.counts for result in results]
        arrays["tables"] = np.frombuffer(tables.getvalue(), np.uint8)
        np.savez(content, **arrays)
        view = content.getbuffer()
        view[:DIGEST_BYTES] = hashlib.sha256(view[DIGEST_BYTES:]).digest()
        with explain_disk_errors(self._path):
            # The file is not flushed to disk, which takes time for each window: its digest shows an incomplete file.
            unfinished = self.folder / "unfinished"
            unfinished.unlink(missing_ok=True)
            with unfinished.open("xb") as file:  # follows no link
                file.write(view)
            unfinished.replace(self._path)
        self.count += 1

    def _read(self, key: str) -> list[Result] | None:
        """Return the results of the next window, or None if they are not in the folder. Restore the sample after it."""
        try:
            content = memoryview(self._path.read_bytes())
        except OSError:
            return None
        if content[:DIGEST_BYTES] != hashlib.sha256(content[DIGEST_BYTES:]).digest():
            return None
        with np.load(io.BytesIO(content[DIGEST_BYTES:]), allow_pickle=False) as file:
            if str(file["key"]) != key:
                return None
            columns = {name.removeprefix(SAMPLED): file[name] for name in file.files if name.startswith(SAMPLED)}
            self.sample.add_sampled(SampledRows(float(file["rate"]), int(file["drawn"]), columns))
            with pa.ipc.open_stream(pa.py_buffer(file["tables"])) as tables:
                counts = (Counts(*each) for each in file["counts"].tolist())
                return [Result(table, each) for table, each in zip(tables, counts, strict=True)]
