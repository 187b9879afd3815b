"""Fuzzing cases of predictions: mutated bundles and mutated inputs.

A case runs in a folder of its own: `bundle`, `work` (the input, and the working folder of the process), `out`, `tmp`
and `cache`. Only the output may appear in it. Python's and seqclf's memory may grow by `MAX_BYTES` in a case.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from fuzzing import cases
from fuzzing.bases import bases
from fuzzing.bundle_bases import FILE_PREFIX, KINDS, NEW
from fuzzing.bundle_mutations import SECRET, mutate
from fuzzing.cases import Outcome, guarded, message_faults, terminal_output
from fuzzing.columns import Random, pick
from fuzzing.files import write
from fuzzing.mutations import BYTES
from fuzzing.truth import truth

from seqclf.bundle import model, soundness
from seqclf.bundle.journal import WINDOW, journal_folder
from seqclf.bundle.model import BundleModel
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.soundness import CheckedBundle
from seqclf.commands.predict import main as _predict
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.rows import as_text
from seqclf.data.schema.schema import require_columns
from seqclf.errors import InputError
from seqclf.settings.command_settings import RayOptions

OUTPUTS = ("scores.parquet", "scores.csv", "scores.jsonl", "scores.arrow", "parts/")
WINDOW_ROWS = 5  # several windows, and so several files of a journal, in a small input
MAX_BYTES = 3 * 2**30  # of address space, of which the first case of a process needs 2 GB for libraries and threads
# Texts of the terminal that are findings. Notes of seqclf are none, nor is what ONNX Runtime logs outside of a session.
UNWANTED = re.compile("Traceback|Warning|onnxruntime:,|Exception ignored|terminate called|Error:")
# Errors of rows that can be read: CSV has no lists, and `MAX_BYTES` is less than the memory that seqclf finds.
ALLOWED = re.compile("Unsupported Type:list|out of memory")
PLACE = re.compile(
    r"data\.\w|\.(csv|tsv|txt|jsonl|parquet|arrow|feather|ts|gz|zst|onnx|npz)\b|folder|bundle|output|stream|field"
)


@dataclass
class PredictionCase:
    """A folder in which a bundle predicts. `input`: the file, glob or folder to predict. `rows`: rows of Python."""

    number: int
    kind: str
    mutations: list[str]
    folder: Path
    bundle: Path
    input: str
    output: str
    rows: list[Any] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    file_case: cases.Case | None = None

    @property
    def target(self) -> str:
        return f"{self.folder}/out/{self.output}"

    def config(self, **changes: Any) -> Any:
        """The config of the command `predict`."""
        unset: dict[str, Any] = dict.fromkeys(("sequence", "threshold", "header", "encoding", "quote", "delimiter"))
        unset["ray"] = RayOptions()
        paths = {"bundle": str(self.bundle), "input": self.input, "output": self.target}
        unset |= dict.fromkeys(("explain", "embeddings", "running"), False)
        return SimpleNamespace(**{**unset, **paths, "device": "cpu", "threads": 1, "engine": "local", **changes})


def make_bundle_case(seed: int, number: int, folder: Path, bundles: Path) -> PredictionCase:
    """Copy a bundle and mutate the copy. The same seed and number give the same bundle."""
    random = np.random.default_rng([seed, number, 1])
    kind = KINDS[number % len(KINDS)]
    case = _case(number, kind, folder, bundles / kind, pick(random, OUTPUTS))
    shutil.copytree(bundles / kind / "bundle", case.bundle)
    shutil.copy(bundles / kind / NEW, folder / "work" / NEW)
    case.mutations = [mutate(random, case.bundle) for _ in range(1 + int(random.choice(3, p=[0.7, 0.2, 0.1])))]
    return case


def make_input_case(seed: int, number: int, folder: Path, bundles: Path) -> PredictionCase:
    """Write a mutated file. One in four text files is compressed, before or after the mutation of its bytes."""
    file_case = cases.make_case(seed, number, folder / "work")
    random, base = np.random.default_rng([seed, number, 2]), file_case.base
    case = _case(number, base.kind, folder, bundles / f"{FILE_PREFIX}{base.kind}", pick(random, OUTPUTS))
    case.bundle, case.mutations = bundles / f"{FILE_PREFIX}{base.kind}" / "bundle", file_case.mutations
    case.input, case.file_case, case.options = str(file_case.options["train"]), file_case, file_case.options
    if len(file_case.files) == 1 and file_case.files[0].exists() and random.integers(4) == 0:
        _rename(random, case, file_case.files[0])
    return case


def _rename(random: Random, case: PredictionCase, path: Path) -> None:
    """Give a file another name of its format, or compress it."""
    if path.suffix in (".parquet", ".gz", ".ts"):
        return
    if path.suffix == ".arrow":
        case.input = str(path.rename(path.with_suffix(".feather")))
        return
    ending, codec = pick(random, [(".gz", "gzip"), (".zst", "zstd")])
    target = path.with_name(path.name + ending)
    with pa.CompressedOutputStream(str(target), codec) as stream:
        stream.write(path.read_bytes())
    path.unlink()
    if random.integers(2):
        name = pick(random, sorted(BYTES))
        target.write_bytes(BYTES[name](random, target.read_bytes()))
        case.mutations.append(f"{name} ({ending})")
    case.input = str(target)


def _case(number: int, kind: str, folder: Path, exported: Path, output: str) -> PredictionCase:
    for name in ("work", "out", "tmp", "cache"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / "work"):
        (place / SECRET).write_text("not of the bundle")
    rows = json.loads((exported / "rows.json").read_text()) if (exported / "rows.json").is_file() else []
    return PredictionCase(number, kind, [], folder, folder / "bundle", str(folder / "work" / NEW), output, rows)


@contextmanager
def _settings(case: PredictionCase) -> Iterator[None]:
    """Set the folders and the limits of a case, and restore those of the process."""
    limits, here, cache_folder = resource.getrlimit(resource.RLIMIT_AS), Path.cwd(), os.environ.get("SEQCLF_CACHE")
    patched = [(model, "WINDOW_ROWS", WINDOW_ROWS), (tempfile, "tempdir", str(case.folder / "tmp"))]
    patched += [(soundness, name, 0.0) for name in ("SECONDS", "MAX_SECONDS")]
    before = [(module, name, getattr(module, name)) for module, name, _ in patched]
    for module, name, value in patched:
        setattr(module, name, value)
    os.environ["SEQCLF_CACHE"] = str(case.folder / "cache")
    os.chdir(case.folder / "work")
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MAX_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        os.chdir(here)
        os.environ.pop("SEQCLF_CACHE")
        if cache_folder is not None:
            os.environ["SEQCLF_CACHE"] = cache_folder
        for module, name, value in before:
            setattr(module, name, value)


def examine_bundle(case: PredictionCase, _: Path) -> Outcome:
    """Open, predict, check and stream with a mutated bundle."""
    return _examined(case, lambda outcome: _use_bundle(case, outcome))


def examine_input(case: PredictionCase, _: Path) -> Outcome:
    """Predict a mutated input by a valid bundle."""
    outcome = _examined(case, lambda outcome: _predict_input(case, outcome))
    if (
        outcome.status == "error"
        and (case.number % 3 == 0 or journal_folder(case.target).exists())
        and (
            "[1]" not in case.input or "*" not in case.input  # this glob matches no file
        )
    ):
        repaired = _repair(case)
        again = _examined(
            repaired, lambda outcome: guarded(outcome, lambda: _predict(repaired.config()), faults_of=_faults)
        )
        outcome.findings += [f"repaired: {text}" for text in (again.message, *again.findings) if text]
        expected = _expected(f"{FILE_PREFIX}{case.kind}", case.output, case.bundle.parent.parent)
        if not again.message and contents(case.target) != expected:
            outcome.findings.append("the output after the repair is another than without the error")
    return outcome


def _examined(case: PredictionCase, run: Callable[[Outcome], None]) -> Outcome:
    outcome = Outcome(case.number, case.kind, case.mutations)
    before, written = _listing(case.folder), list[str]()
    with _settings(case), terminal_output(written), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # numbers beyond float32
        warnings.filterwarnings("ignore", category=ResourceWarning)  # of numpy.load, and not shown by default
        run(outcome)
    outcome.findings += [f"written to the terminal: {text[:400]!r}" for text in written if UNWANTED.search(text)]
    outcome.findings += _changes(before, _listing(case.folder))
    return outcome


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of each file of a case, but for those in the folder of the output."""
    paths = [path for path in folder.rglob("*") if path.relative_to(folder).parts[0] != "out"]
    status = {path.relative_to(folder).as_posix(): path.lstat() for path in paths}
    return {name: (0, 0) if (folder / name).is_dir() else (s.st_size, s.st_mtime_ns) for name, s in status.items()}


def _changes(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> Iterator[str]:
    """Yield what a case changed outside of its output."""
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            change = "written" if name not in before else "deleted" if name not in after else "changed"
            yield f"{change} outside of the output: {name}"


def _use_bundle(case: PredictionCase, outcome: Outcome) -> None:
    opened: list[Classifier] = []
    guarded(outcome, lambda: opened.append(Classifier(case.bundle, device="cpu", threads=1)), "open: ", _faults)
    if opened:
        _use_classifier(opened[0], case, outcome)
    with suppress(InputError):
        guarded(outcome, lambda: _file(case, outcome.findings, len(case.rows)), "file: ", _faults)
    guarded(outcome, lambda: _doctor(case, outcome.findings), "doctor: ", _faults)


def _use_classifier(classifier: Classifier, case: PredictionCase, outcome: Outcome) -> None:
    if "external_data" in case.mutations and _reads_secret(classifier):
        outcome.findings.append("a model with weights outside of the bundle was opened")
    guarded(outcome, lambda: _rows(classifier, case, outcome.findings), "rows: ", _faults)
    if "step" in classifier.manifest:
        guarded(outcome, lambda: _stream(classifier, case, outcome.findings), "stream: ", _faults)
    repr(classifier)


def _faults(message: str) -> Iterator[str]:
    return message_faults(message, PLACE)


def _reads_secret(classifier: Classifier) -> bool:
    """Return True if the model that a classifier runs has weights in a file outside of the bundle."""
    return SECRET.encode() in (classifier.folder / "model.onnx").read_bytes()


def _rows(classifier: Classifier, case: PredictionCase, findings: list[str]) -> None:
    for rows in (case.rows, case.rows[:1], [{}, *case.rows[1:3]]):
        found = classifier.predict(rows)
        if len(found) != len(rows):
            findings.append(f"{len(found)} predictions of {len(rows)} rows")
        findings += _faults_of_rows(found, "rows")


def _stream(classifier: Classifier, case: PredictionCase, findings: list[str]) -> None:
    stream = classifier.stream()
    for _ in range(2):
        found = stream.read(dict(enumerate(case.rows)))
        if len(found) != len(case.rows):
            findings.append(f"stream: {len(found)} predictions of {len(case.rows)} rows")
        findings += _faults_of_rows(list(found.values()), "stream")


def _faults_of_rows(found: list[Any], place: str) -> Iterator[str]:
    """Yield the faults of predictions. A row has an error or a label, and probabilities from 0 to 1."""
    for row, result in enumerate(found):
        if (result["error"] is None) == (result["prediction"] is None):
            yield f"{place}: row {row} has an error and a prediction, or none"
            return
        if result["error"] is None and not 0 <= result["probability"] <= 1:
            yield f"{place}: row {row} has the probability {result['probability']}"
            return


def _file(case: PredictionCase, findings: list[str], rows: int | None = None, ids: list[Any] | None = None) -> Any:
    """Run the command on the input of a case, and check the output. After an error, no output may be there."""
    try:
        result = _predict(case.config())
    except InputError:
        findings += [f"after an error: {name}" for name in _leftovers(case)]
        raise
    found = read_output(case.target)
    errors = found.pop("error")
    if rows is not None and len(errors) != rows:
        findings.append(f"{len(errors)} output rows of {rows} input rows")
    if (result.rows, result.refused) != (len(errors), len(errors) - errors.count(None)):
        findings.append(f"the result says {result.rows} rows, {result.refused} refused; the output has {len(errors)}")
    for row, (error, label) in enumerate(zip(errors, found["prediction"], strict=True)):
        if (error is None) == (label is None):
            findings.append(f"output row {row}: error {error!r}, prediction {label!r}")
            break
    # An id of another type than text keeps its type in the output, and so may have another text.
    if (
        ids
        and not {"other_type", "swapped_columns"} & {*case.mutations}
        and [str(value) for value in found["id"]] != [str(value) for value in ids]
    ):
        findings.append("the ids of the output are not those of the input, in its order")
    findings += [f"after a prediction: {name}" for name in _leftovers(case) if name.startswith(".")]
    return result


def _leftovers(case: PredictionCase) -> list[str]:
    """Return the files beside the output, but for a journal of finished windows, with which the command goes on."""
    held = journal_folder(case.target)
    resumable = {held.name} if any(held.glob(f"*{WINDOW}")) else set()
    return sorted({path.name for path in (case.folder / "out").iterdir()} - resumable)


def read_output(target: str) -> dict[str, list[Any]]:
    """Return the columns of an output."""
    path = Path(target)
    if target.endswith("/"):
        tables = [pq.read_table(part) for part in sorted(path.iterdir())]
        return pa.concat_tables(tables).to_pydict()
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".arrow":
        with pa.ipc.open_file(str(path)) as reader:
            return reader.read_all().to_pydict()
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
        return {name: [row[name] for row in rows] for name in rows[0]}
    convert = arrow_csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    read = arrow_csv.ReadOptions(block_size=2**28)  # more than the longest row
    names = arrow_csv.read_csv(path, read, parse).column_names
    convert.column_types = dict.fromkeys(names, pa.string())
    return arrow_csv.read_csv(path, read, parse, convert).to_pydict()


def _doctor(case: PredictionCase, findings: list[str]) -> None:
    found = soundness.examine(CheckedBundle(case.bundle, "cpu", 1))
    json.dumps(found.to_dict(), allow_nan=False)
    if found.passed is not all(check.passed is not False for check in found.checks):
        findings.append("doctor: the verdict is not that of the checks")
    details = [check.detail for check in found.checks]
    findings += [f"doctor: detail of several lines {text[:200]!r}" for text in details if "\n" in text or "\r" in text]


def _predict_input(case: PredictionCase, outcome: Outcome) -> None:
    read: list[tuple[int, list[Any]]] = []
    unreadable = Outcome(case.number, case.kind, case.mutations)
    guarded(unreadable, lambda: read.append(_read(case)), "reading: ", _faults)
    outcome.findings += unreadable.findings
    count, ids = read[0] if read else (None, None)
    guarded(outcome, lambda: _file(case, outcome.findings, count, ids), "file: ", _faults)
    if not read and outcome.status == "success":
        outcome.findings.append(f"predicted, but reading says: {unreadable.message[:200]}")
    if count and outcome.status == "error" and not ALLOWED.search(outcome.message):
        outcome.findings.append(f"not predicted, but reading yields {count} rows: {outcome.message[:200]}")
    if count is not None and case.file_case is not None and case.input == case.options["train"]:
        expected = truth(case.file_case.base, case.file_case.files).rows
        if expected is not None and not expected[0] <= count <= expected[1]:
            outcome.findings.append(f"{count} rows, but the file has {expected[0]}")
    # An explanation predicts a row as many times as it has tokens, which takes hours for huge ones.
    if case.number % 7 == 0 and not any("huge" in name for name in case.mutations):
        changed = case.config(explain=True, output=f"{case.folder}/out/explained.parquet")
        guarded(outcome, lambda: _predict(changed), "explain: ", _faults)


def _read(case: PredictionCase) -> tuple[int, list[Any]]:
    """Return the number of rows of the input, and their ids."""
    schema, reader_options = _description(case.bundle)
    source, rows, ids = Source(case.input, "input", **reader_options), 0, list[Any]()
    with SourceReader(source) as reader:
        types = reader.column_types
        require_columns(schema.columns, types, str(source))
        schema = replace(schema, label=None, id=schema.id if schema.id in types else None)
        for batch in reader.read(schema):
            rows += batch.columns.num_rows
            ids += as_text(batch.columns.column("id")).to_pylist() if "id" in batch.columns.schema.names else []
    return rows, ids


@cache
def _description(bundle: Path) -> tuple[Any, dict[str, Any]]:
    opened = BundleModel(bundle, device="cpu", threads=1)
    return opened.schema, opened.manifest["reader"]


def _repair(case: PredictionCase) -> PredictionCase:
    """Put the valid files in place of those of a case. The next command must not use what the error left."""
    base, work = bases()[case.kind], Path(case.input).parent
    shutil.rmtree(case.folder / "work")
    work.mkdir(parents=True)
    write(base, work, base.columns)
    return replace(case, input=str(work / base.train))


@cache
def _expected(name: str, output: str, bundles: Path) -> list[tuple[str, bytes]]:
    """Return the output of a valid input."""
    with tempfile.TemporaryDirectory() as folder:
        base = bases()[name.removeprefix(FILE_PREFIX)]
        write(base, Path(folder), base.columns)
        source = f"{folder}/{base.train}"
        case = PredictionCase(0, name, [], Path(folder), bundles / name / "bundle", source, output)
        for place in ("work", "cache", "tmp"):
            (Path(folder) / place).mkdir()
        with _settings(case):
            _predict(case.config())
        return contents(case.target)


def contents(target: str) -> list[tuple[str, bytes]]:
    """Return names and bytes of a file, or of the files in a folder."""
    path = Path(target)
    return [(each.name, each.read_bytes()) for each in (sorted(path.iterdir()) if path.is_dir() else [path])]
