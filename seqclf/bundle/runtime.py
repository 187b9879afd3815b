"""A bundle at work: rows in, probabilities out, on ONNX Runtime and without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pyarrow as pa

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.manifest import MODEL, encoder_file, read_manifest
from seqclf.config.checks import require_whole
from seqclf.data.collect import labelled
from seqclf.data.encoding.encoders import encode, load_encoders
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.record_batches import SourceRows
from seqclf.data.reading.sources import Source, require_files
from seqclf.data.schema.cell_types import split_cell
from seqclf.data.schema.fields import UNITS, Field
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.data.storage.ragged import Ragged, take
from seqclf.data.validation.row_checks import EMPTY_REASON, inspect, too_long_reason
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.system.stored_state import error_context, read_json

WINDOW_ROWS = 16384
MAX_TOKENS = 32768


class Predictions(NamedTuple):
    """Of consecutive rows, in their order. `logits`, `probabilities`: (N, C), NaN where a row was refused; `chosen`:
    (N,) the class decided on, -1 there; `lengths`: (N,) before anything was cut, 0 there; `errors`: why."""

    logits: np.ndarray
    probabilities: np.ndarray
    chosen: np.ndarray
    lengths: np.ndarray
    errors: list[str | None]


def open_session(path: Path, device: str = "auto", threads: int | None = None) -> onnxruntime.InferenceSession:
    """An ONNX Runtime session on `cpu`, `cuda`, or `auto`: CUDA where there is an NVIDIA device."""
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device}: must be auto, cpu or cuda")
    require_whole("threads", threads, 1, optional=True)
    cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and Path("/dev/nvidiactl").exists()
    if device == "cuda" and not cuda:
        raise InputError("device=cuda: no NVIDIA device or no onnxruntime-gpu here; set device=cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0  # 0: a thread per core
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    use_cuda = cuda and device != "cpu"
    providers = ["CUDAExecutionProvider"] if use_cuda else []
    if use_cuda:
        onnxruntime.preload_dlls()
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no class of their own above them
        raise InputError(f"{path}: cannot be loaded ({_first_line(error)}); export the bundle anew") from None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Classifier:
    """A bundle, checked for damage and ready.

    `predict` takes Python values, `predict_source` streams files, `predict_columns` takes Arrow columns.
    `threshold`: see `decisions.overridden`.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        threshold: str | float | None = None,
    ):
        folder = Path(folder)
        self.manifest = read_manifest(folder)
        self.classes: list[str] = self.manifest["classes"]
        self.schema = Schema.from_dict(self.manifest["schema"])
        decision = Decision.from_dict(self.manifest["decision"])
        self.decision = override_threshold(decision, threshold, self.manifest["positive"], self.classes)

        with error_context(f"bundle={folder}", "export the bundle anew"):
            self.encoders = load_encoders(self.schema.fields, lambda name: read_json(folder / encoder_file(name)))
        self.session = open_session(folder / MODEL, device, threads)
        with error_context(f"bundle={folder}: {MODEL}", "export the bundle anew"):
            _check_model(self.session, [encoder.spec() for encoder in self.encoders.values()], len(self.classes))

    def predict(self, sequences: Iterable[Any]) -> list[dict[str, Any]]:
        """One dict per sequence: `prediction`, `probability`, `probabilities` and `error`.

        A sequence is a text, a list of steps, or, with several fields, a dict of lists by field name.
        """
        columns, problems = _columns(list(sequences), self.schema.fields)
        found = self.predict_columns(columns)
        results = []
        for row, chosen, own, error in zip(found.probabilities, found.chosen, problems, found.errors, strict=True):
            error = own or error
            best = None if error else int(chosen)
            results.append(
                {
                    "prediction": None if best is None else self.classes[best],
                    "probability": None if best is None else float(row[best]),
                    "probabilities": None if error else dict(zip(self.classes, row.tolist(), strict=True)),
                    "error": error,
                }
            )
        return results

    def parse(self, text: str) -> Any:
        """A sequence as someone types it: text as it is, steps as JSON or the way the field's cells are written."""
        field = self.schema.fields[0]
        if field.running_text:
            return text
        if text.lstrip().startswith("{"):
            try:
                return json.loads(text)
            except ValueError as error:
                raise InputError(f"sequence={text}: is not JSON ({error}); write {{FIELD: [steps], …}}") from None
        steps = split_cell(text.strip(), field.separator or (None if text.lstrip().startswith("[") else " "))
        if field.kind == "category":
            return steps
        return [float(step) if isinstance(step, str) and _is_number(step) else step for step in steps]

    def predict_source(
        self, source: Source, label: str | None = None, table: LabelTable | None = None
    ) -> Iterator[tuple[SourceRows, Predictions]]:
        """Read the files of a source window by window and predict each; raises InputError if it is SQL.

        With `label`, its column comes along as `label`; with `table`, what that says of each id does.
        """
        require_files(source)
        with SourceReader(source) as reader:
            types = reader.column_types
            wanted = [
                (key.replace("data.fields.", "field ") + " of the bundle", name) for key, name in self.schema.columns
            ]
            if label is not None:
                wanted.append(("data.label", label))
            id = self.schema.id if self.schema.id in types else None
            if table is not None and id is None and not self.schema.group_by:
                lacking = (
                    f"no column '{self.schema.id}' (data.id)"
                    if self.schema.id
                    else "the bundle was trained without data.id"
                )
                raise InputError(f"{source}: {lacking}, by which the labels of {table.source} are joined")
            require_columns(wanted, types, str(source))
            schema = replace(self.schema, label=label, id=id)
            for batch in reader.read(schema, rows=WINDOW_ROWS):
                yield (batch if table is None else labelled(batch, table)), self.predict_columns(batch.columns)

    def predict_columns(self, columns: pa.RecordBatch) -> Predictions:
        """Canonical columns, as `SourceReader.read` gives them → predictions in the same order."""
        problems = inspect(columns, self.schema, labelled=False)
        logits = np.full((columns.num_rows, len(self.classes)), np.nan, np.float32)
        whole = np.zeros(columns.num_rows, np.int64)
        usable = np.flatnonzero(problems.usable)
        if len(usable):
            kept = columns.take(pa.array(usable))
            sequences, original_lengths = encode(self.encoders, kept, self.schema.truncation)
            limit, column = self.schema.max_length, self.schema.fields[0].column
            problems.mark(usable[original_lengths == 0], column, EMPTY_REASON)
            if limit is not None and self.schema.truncate == "error":
                problems.mark(usable[original_lengths > limit], column, too_long_reason(original_lengths, limit))
            keep = np.flatnonzero(problems.usable[usable])
            logits[usable[keep]] = self.logits(take(sequences, keep))
            whole[usable[keep]] = original_lengths[keep]
        found = problems.found
        errors = [f"{found[row].column} {found[row].reason}" if row in found else None for row in range(len(whole))]
        probabilities = self.decision.probabilities(logits)
        chosen = self.decision.choose(np.nan_to_num(logits))
        return Predictions(logits, probabilities, np.where(whole > 0, chosen, -1), whole, errors)

    def logits(self, sequences: Ragged) -> np.ndarray:
        """(N, C) logits of encoded sequences, run in batches of similar length."""
        logits = np.empty((len(sequences), len(self.classes)), np.float32)
        plan = plan_batches(
            sequences.lengths, max_tokens=MAX_TOKENS, max_sequences=None, pool_batches=None, seed=0, epoch=0
        )
        for rows in plan:
            fields, lengths = pad(sequences, rows)
            inputs = {name: fields[name] for name in self.encoders}
            try:
                logits[rows] = self.session.run(["logits"], {**inputs, "lengths": lengths})[0]
            except Exception as error:  # see `open_session`; also logits of another shape
                raise InputError(f"model.onnx: cannot be run ({_first_line(error)}); export the bundle anew") from None
        return logits


def _check_model(session: onnxruntime.InferenceSession, specs: list[dict[str, Any]], classes: int) -> None:
    """Raise InputError unless the model takes what the encoders give and returns a logit for each class."""
    wanted: dict[str, tuple[str, int]] = {"lengths": ("tensor(int64)", 1)}
    for spec in specs:
        wanted[spec["name"]] = ("tensor(int64)", 2) if spec["kind"] == "category" else ("tensor(float)", 3)
    given = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    if given != wanted:
        raise InputError(f"takes the inputs {', '.join(sorted(given))}, not {', '.join(sorted(wanted))} as encoded")
    widths = {entry.name: entry.shape[-1] for entry in session.get_inputs()}
    for spec in specs:
        if spec["kind"] == "number" and widths[spec["name"]] != spec["width"]:
            raise InputError(
                f"takes {widths[spec['name']]} channels of {spec['name']}, its encoder gives {spec['width']}"
            )
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(f"does not return logits of {classes} classes")


def _columns(sequences: list[Any], fields: tuple[Field, ...]) -> tuple[pa.RecordBatch, list[str | None]]:
    """Python sequences as canonical columns; what cannot be a column's value is null there and has an error."""
    errors: list[str | None] = [None] * len(sequences)
    columns: dict[str, list[Any]] = {field.name: [None] * len(sequences) for field in fields}
    for row, sequence in enumerate(sequences):
        if len(fields) > 1 and not isinstance(sequence, Mapping):
            errors[row] = f"is not a dict of the fields {', '.join(columns)}"
            continue
        if isinstance(sequence, Mapping) and set(sequence) - set(columns):
            errors[row] = f"has the field {min(set(sequence) - set(columns))}; the bundle knows {', '.join(columns)}"
            continue
        for field in fields:
            given = sequence.get(field.name) if isinstance(sequence, Mapping) else sequence
            try:
                columns[field.name][row] = _value(given, field)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                errors[row] = f"{field.name} is not {_expected(field)}"
    arrays = {field.name: pa.array(columns[field.name], _arrow_type(field)) for field in fields}
    return pa.record_batch(arrays), errors


def _value(given: Any, field: Field) -> Any:
    """`given` as a value of the field's column; raises what Arrow raises where it cannot be one."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, str) and not field.running_text:
        raise ValueError("a text is not a list")
    if field.kind == "category" and isinstance(given, (list, tuple)):
        cast = _integer if field.values == "integer" else str
        given = [entry if entry is None else cast(entry) for entry in given]
    if field.kind == "time" and isinstance(given, (list, tuple)):
        given = [_seconds(entry, field) for entry in given]
    return pa.scalar(given, _arrow_type(field)).as_py()


def _seconds(entry: Any, field: Field) -> float | None:
    """A point in time, as a number of the field's unit or a `datetime`, in seconds."""
    if isinstance(entry, datetime):
        return entry.replace(tzinfo=entry.tzinfo or UTC).timestamp()
    return None if entry is None else float(entry) * UNITS[field.option("unit")]


def _integer(entry: Any) -> int:
    if isinstance(entry, float) and not entry.is_integer():
        raise ValueError(f"{entry} is not an integer")
    return int(entry)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _arrow_type(field: Field) -> pa.DataType:
    if field.running_text:
        return pa.string()
    if field.kind == "category":
        return pa.list_(pa.int64() if field.values == "integer" else pa.string())
    return pa.list_(pa.list_(pa.float64()) if (field.width or 1) > 1 else pa.float64())


def _expected(field: Field) -> str:
    if field.kind == "number":
        return "a list of numbers" if field.width == 1 else f"a list of vectors of {field.width} numbers"
    if field.kind == "time":
        return "a list of times"
    return "a text" if field.running_text else f"a list of {field.values}s"
