"""Journal of a prediction: the results of its finished windows, so that a killed command goes on where it was.

It is a hidden folder beside the output, with an Arrow file for each window, which is renamed when it is complete. A
file that a power failure cut off does not open, and its window is predicted again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import onnxruntime
import pyarrow as pa

from seqclf.bundle.drift import LimitError, RowSample
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Counts, Result
from seqclf.bundle.windows import PredictWindows, Window
from seqclf.data.reading.object_store import is_object_url
from seqclf.data.reading.sources import Source, cache_folder, source_state
from seqclf.documents.terminal import show_note
from seqclf.system import progress
from seqclf.system.atomic_files import explain_disk_errors
from seqclf.system.run_folder import LOCK, locked
from seqclf.system.version import __version__

WINDOW = ".arrow"
SAMPLED = "sampled "  # keeps the columns of a sample apart from the arguments of `numpy.savez`


def journal_folder(output: str) -> Path:
    """Return the folder of the journal: beside the output, or in the cache folder if the output is in a store."""
    if is_object_url(output):
        name = hashlib.sha256(output.encode()).hexdigest()[:16]
        return Path(cache_folder()).expanduser() / "seqclf-journals" / name
    path = Path(output).absolute()
    # A name like `.seqclf-…` could match the names of temporary files, which the next command deletes.
    return path.with_name(f".seqclf.{path.name}.journal")


def run_identity(classifier: BundleModel, source: Source, by_field: bool | None, engine: str) -> dict[str, str]:
    """Return digests of all that the results depend on: of the input, of the bundle and of the options.

    The number of threads changes no digit (see `ReaderLimits`) and is left out. `engine` names the device of Ray's
    actors.
    """
    state, versions = source_state(source), (__version__, onnxruntime.__version__)
    files = [(file.path, file.size, file.modified_ns, file.inode_changed_ns) for file in state.files]
    outputs = by_field, list(classifier.extra)
    options = (state.options[1:], classifier.decision.to_dict(), outputs, engine, classifier.provider, versions)
    parts = {"input": (source.path, files), "bundle": classifier.manifest["digest"], "options": options}
    return {name: _digest(value) for name, value in parts.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogatepass")).hexdigest()


@contextmanager
def open_journal(output: str, identity: Mapping[str, str], sample: RowSample) -> Iterator[Journal]:
    """Hold the journal of an output, which is removed at the end of the `with` block.

    After an error other than LimitError, a journal with windows is left. Raises InputError if another process holds it.
    """
    folder = journal_folder(output)
    made = [folder, *(path for path in folder.parents if not path.exists())]
    with explain_disk_errors(folder):
        if folder.is_symlink():  # the files of another folder would be changed
            folder.unlink()
        try:
            folder.mkdir(mode=0o700, parents=True)
        except FileExistsError:
            with suppress(FileNotFoundError):  # another process has just removed it
                folder.chmod(0o700)  # fails for a folder of another user
    try:
        with locked(folder, f"output={output}", "this output"):
            try:
                yield Journal(folder, identity, sample)
            except BaseException as error:
                if not isinstance(error, LimitError) and any(folder.glob(f"*{WINDOW}")):
                    show_note(f"the same command goes on after its finished windows, which are in {folder}")
                else:
                    _remove_files(folder)
                raise
            _remove_files(folder)
    finally:
        with suppress(OSError):  # a folder is not empty, or another process has begun
            for path in made:
                path.rmdir()


def _remove_files(folder: Path, first: int = 0) -> None:
    with explain_disk_errors(folder):
        for path in folder.iterdir():
            if path.name != LOCK and (path.suffix != WINDOW or int(path.stem) >= first):
                path.unlink()


class Journal:
    """Results of the finished windows of a run, in a folder that this process has locked.

    `identity`: see `run_identity`; results of another identity are removed. `sample`: sample to which the windows add
    rows. `rows`: number of rows whose results were read from the folder.
    """

    def __init__(self, folder: Path, identity: Mapping[str, str], sample: RowSample):
        self.folder, self.identity, self.sample = folder, dict(identity), sample
        self.rows = self.count = 0  # `count`: number of windows that are in the folder

    def results(self, windows: Iterable[Window], predict: PredictWindows) -> Iterator[Result]:
        """Yield the results of all windows: first the stored ones, then the results of `predict`, which are stored."""
        coming = iter(windows)
        rest: list[Window] = []  # the first window that is not in the folder
        for window in coming:
            if (stored := self._read(window)) is None:
                rest.append(window)
                break
            yield from stored
            self.rows += window.columns.num_rows
            self.count += 1
        if self.rows:
            progress.skip()
            show_note(f"goes on after {self.rows:,} rows")
        _remove_files(self.folder, self.count)
        keys = deque[str]()  # an engine takes windows ahead of its results

        def remembered() -> Iterator[Window]:
            for window in itertools.chain(rest, coming):
                keys.append(_key(window))
                yield window

        drawn = self.sample.drawn
        for results in predict(remembered()):
            self._write(keys.popleft(), results, self.sample.added_since(drawn))
            drawn = self.sample.drawn
            yield from results

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.count:08d}{WINDOW}"

    def _write(self, key: str, results: list[Result], sampled: Mapping[str, np.ndarray]) -> None:
        sample, unfinished = io.BytesIO(), self.folder / "unfinished"
        arrays: dict[str, Any] = {f"{SAMPLED}{name}": column for name, column in sampled.items()}
        np.savez(sample, **arrays)
        about = {"identity": json.dumps(self.identity), "key": key, "sample": sample.getvalue()}
        with explain_disk_errors(self._path):
            # Metadata of the schema would be read back as a part of the results, that of a batch is not.
            with pa.ipc.new_file(str(unfinished), results[0].table.schema) as file:
                for result in results:
                    file.write_batch(result.table, {**about, "counts": json.dumps(result.counts)})
                    about = {}
            unfinished.replace(self._path)
        self.count += 1

    def _read(self, window: Window) -> list[Result] | None:
        """Return the results of the next window, or None if they are not in the folder. Restore the sample after it."""
        key = _key(window)
        try:
            with pa.ipc.open_file(self._path.read_bytes()) as file:
                batches = [file.get_batch_with_custom_metadata(each) for each in range(file.num_record_batches)]
            about = batches[0].custom_metadata
            before = json.loads(about[b"identity"])
            if changed := [name for name, digest in self.identity.items() if before.get(name) != digest]:
                show_note(f"starts afresh: {' and '.join(changed)} changed since the command was killed")
            if changed or about[b"key"].decode() != key:
                return None
            with np.load(io.BytesIO(about[b"sample"]), allow_pickle=False) as sample:
                sampled = {name.removeprefix(SAMPLED): sample[name] for name in sample.files}
            results = [Result(batch, Counts(*json.loads(metadata[b"counts"]))) for batch, metadata in batches]
        except (OSError, ValueError, KeyError, TypeError, BadZipFile, pa.ArrowException):
            return None
        self.sample.restore(sampled)
        return results


def _key(window: Window) -> str:
    """Digest the place, and the first and last rows, because a query may give its rows in another order."""
    columns, ends = window.columns, io.BytesIO()
    with pa.ipc.new_stream(ends, columns.schema) as stream:  # Python has not all dates of Arrow
        stream.write_batch(columns.take(pa.array([0, columns.num_rows - 1])))
    return _digest((window.first_row, columns.num_rows, ends.getvalue()))
