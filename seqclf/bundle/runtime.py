"""Prediction with a bundle on ONNX Runtime, without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import onnxruntime
import pyarrow as pa

from seqclf.batching.collate import pad
from seqclf.batching.plan import plan_batches
from seqclf.bundle.manifest import MODEL, encoder_file, read_manifest
from seqclf.bundle.python_rows import to_columns
from seqclf.data.collect import labelled
from seqclf.data.encoding.encoders import encode, load_encoders
from seqclf.data.encoding.field_spec import FieldSpec, input_axes, input_type
from seqclf.data.encoding.list_columns import lengths_or_zero
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.record_batches import SourceRows
from seqclf.data.reading.row_estimate import estimate_rows
from seqclf.data.reading.sources import Source, require_files
from seqclf.data.schema.schema import Schema, require_columns
from seqclf.data.storage.ragged import Ragged, take
from seqclf.data.validation.row_checks import EMPTY_REASON, check_rows, too_long_reason
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.system import progress
from seqclf.system.stored_state import error_context, read_json

WINDOW_ROWS = 16384
MAX_TOKENS = 32768
MAX_ENCODED_TOKENS = 500_000  # at a time, so that long sequences of wide tokens fit into memory


class Predictions(NamedTuple):
    """Predictions of consecutive rows.

    `logits`, `probabilities`: (N, C), NaN in refused rows. `predicted`: (N,) class numbers, -1 in refused rows.
    `lengths`: (N,) tokens before truncation, 0 in refused rows. `errors`: why a row was refused, None if it was not.
    """

    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray
    lengths: np.ndarray
    errors: list[str | None]


class SequencePrediction(TypedDict):
    """Prediction of one sequence. `probability` is that of the label, `probabilities` those of all labels.

    A refused sequence has an `error`, and None in all other keys.
    """

    prediction: str | None
    probability: float | None
    probabilities: dict[str, float] | None
    error: str | None


def open_session(path: Path, device: str = "auto", threads: int | None = None) -> onnxruntime.InferenceSession:
    """Open an ONNX Runtime session.

    `device`: cpu, cuda, or auto, which is CUDA where there is an NVIDIA device. `threads`: None for one per core.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device}: must be auto, cpu or cuda")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise InputError(f"threads={threads}: must be a whole number of at least 1, or null")
    has_cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers() and Path("/dev/nvidiactl").exists()
    if device == "cuda" and not has_cuda:
        raise InputError("device=cuda: no NVIDIA device or no onnxruntime-gpu here; set device=cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0  # 0: a thread per core
    # Spinning threads take the cores from reading and encoding, and from PyTorch where both run in one process.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    use_cuda = has_cuda and device != "cpu"
    providers = ["CUDAExecutionProvider"] if use_cuda else []
    if use_cuda:
        onnxruntime.preload_dlls()
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise InputError(f"{path}: cannot be loaded ({_first_line(error)}); export the bundle anew") from None


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class Classifier:
    """Classifier of a bundle.

    `predict` takes Python values, `predict_source` streams files, and `predict_columns` takes Arrow columns.

    ```python
    classifier = Classifier("runs/fraud/bundle", threshold=0.2)
    classifier.predict([[3, 1, 4]])[0]["prediction"]
    ```

    `device`, `threads`: see `open_session`. `threshold`: see `evaluation.decision.override_threshold`.
    Raises InputError if the bundle is damaged or of another version.
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
        # First: it compares the hash of every other file before one of them is read.
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

    def predict(self, sequences: Iterable[Any]) -> list[SequencePrediction]:
        """Return a prediction for each sequence. One that is refused has an error and no label.

        A sequence is a text, a list of tokens, or, with several fields, a mapping of lists by field name.
        """
        columns, value_errors = to_columns(list(sequences), self.encoders)
        predictions = self.predict_columns(columns)
        results: list[SequencePrediction] = []
        for row, value_error in enumerate(value_errors):
            error = value_error or predictions.errors[row]
            label = probability = by_label = None
            if error is None:
                index, probabilities = int(predictions.predicted[row]), predictions.probabilities[row].tolist()
                label, probability = self.classes[index], probabilities[index]
                by_label = dict(zip(self.classes, probabilities, strict=True))
            results.append({"prediction": label, "probability": probability, "probabilities": by_label, "error": error})
        return results

    def parse(self, text: str) -> Any:
        """Read a sequence from the command line: running text as it is, tokens as JSON or as in the field's cells."""
        return self.encoders[self.schema.fields[0].name].parse(text)

    @property
    def unlabelled(self) -> tuple[str, ...]:
        """Columns that the query of training may name, and that files to be predicted lack: the label."""
        return () if self.schema.label is None else (self.schema.label,)

    def predict_source(
        self, source: Source, label: str | None = None, table: LabelTable | None = None
    ) -> Iterator[tuple[SourceRows, Predictions]]:
        """Read the files of a source in windows of `WINDOW_ROWS` rows, and predict each window.

        `label`: a column to read along as `label`. `table`: a label table to join by id instead. Raises InputError if
        the source is SQL.
        """
        require_files(source)
        with SourceReader(source, null_columns=self.unlabelled if label is None else ()) as reader:
            types = reader.column_types
            required = [
                (key.replace("data.fields.", "field ") + " of the bundle", name) for key, name in self.schema.columns
            ]
            if label is not None:
                required.append(("data.label", label))
            id = self.schema.id if self.schema.id in types else None
            if table is not None and id is None and not self.schema.group_by:
                reason = (
                    f"no column '{self.schema.id}' (data.id)"
                    if self.schema.id
                    else "the bundle was trained without data.id"
                )
                raise InputError(f"{source}: {reason}, by which the labels of {table.source} are joined")
            require_columns(required, types, str(source))
            schema = replace(self.schema, label=label, id=id)
            total = None if self.schema.group_by else estimate_rows(reader)
            with progress.stage(f"predicting {source.short_name}", total=total, unit="rows") as predicting:
                read = 0
                for rows in reader.read(schema, rows=WINDOW_ROWS):
                    predictions = self.predict_columns(rows.columns)
                    read += rows.columns.num_rows
                    predicting.completed = read  # `logits` does not count refused rows
                    yield (rows if table is None else labelled(rows, table)), predictions

    def predict_columns(self, columns: pa.RecordBatch) -> Predictions:
        """Predict canonical columns (see `SourceReader.read`), in their order."""
        problems = check_rows(columns, self.schema, self.encoders, labelled=False)
        logits = np.full((columns.num_rows, len(self.classes)), np.nan, np.float32)
        lengths = np.zeros(columns.num_rows, np.int64)
        usable = np.flatnonzero(problems.usable)
        for rows in self._parts(columns, usable):
            sequences, original_lengths = encode(self.encoders, columns.take(pa.array(rows)), self.schema.truncation)
            limit, column = self.schema.max_length, self.schema.fields[0].column
            problems.mark(rows[original_lengths == 0], column, EMPTY_REASON)
            if limit is not None and self.schema.truncate == "error":
                problems.mark(rows[original_lengths > limit], column, too_long_reason(original_lengths, limit))
            encoded = np.flatnonzero(problems.usable[rows])
            logits[rows[encoded]] = self.logits(take(sequences, encoded))
            lengths[rows[encoded]] = original_lengths[encoded]
        reasons = {row: f"{problem.column} {problem.reason}" for row, problem in problems.first_problems.items()}
        errors = [reasons.get(row) for row in range(columns.num_rows)]
        probabilities = self.decision.probabilities(logits)
        # Refused rows have NaN logits, which cannot be compared. Whatever is chosen for them is replaced by -1.
        predicted = self.decision.choose(np.nan_to_num(logits))
        return Predictions(logits, probabilities, np.where(lengths > 0, predicted, -1), lengths, errors)

    def _parts(self, columns: pa.RecordBatch, rows: np.ndarray) -> list[np.ndarray]:
        """Cut `rows` into parts of about `MAX_ENCODED_TOKENS` tokens. Texts, which are no tokens yet, stay together."""
        first = columns.column(self.schema.fields[0].name)
        if not len(rows) or not pa.types.is_list(first.type):
            return [rows] if len(rows) else []
        part = np.cumsum(lengths_or_zero(first)[rows], dtype=np.int64) // MAX_ENCODED_TOKENS
        return np.split(rows, np.flatnonzero(np.diff(part)) + 1)

    def logits(self, sequences: Ragged) -> np.ndarray:
        """(N, C) logits of encoded sequences."""
        # ONNX Runtime computes padded tokens too: batches of similar length are several times as fast.
        logits = np.empty((len(sequences), len(self.classes)), np.float32)
        plan = plan_batches(
            sequences.lengths, max_tokens=MAX_TOKENS, max_sequences=None, pool_batches=None, seed=0, epoch=0
        )
        for rows in plan:
            fields, lengths = pad(sequences, rows)
            inputs = {name: fields[name] for name in self.encoders}
            try:
                logits[rows] = self.session.run(["logits"], {**inputs, "lengths": lengths})[0]
            except Exception as error:  # no common base class; also logits of another shape
                raise InputError(f"model.onnx: cannot be run ({_first_line(error)}); export the bundle anew") from None
            progress.advance("rows", len(rows))  # of a window, which may take long
        return logits


def _check_model(session: onnxruntime.InferenceSession, specs: list[FieldSpec], classes: int) -> None:
    """Raise InputError unless the model takes what the encoders give and returns a logit for each class."""
    expected: dict[str, tuple[str, int]] = {"lengths": ("tensor(int64)", 1)}
    for spec in specs:
        kind = "tensor(float)" if input_type(spec) is np.float32 else "tensor(int64)"
        expected[spec["name"]] = (kind, len(input_axes(spec)))
    inputs = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    if inputs != expected:
        raise InputError(f"takes the inputs {', '.join(sorted(inputs))}, not {', '.join(sorted(expected))} as encoded")
    shapes = {entry.name: entry.shape for entry in session.get_inputs()}
    for spec in specs:
        width = input_axes(spec)[-1]
        if isinstance(width, int) and shapes[spec["name"]][-1] != width:
            raise InputError(f"takes {shapes[spec['name']][-1]} channels of {spec['name']}, its encoder gives {width}")
    outputs = {entry.name: entry.shape for entry in session.get_outputs()}
    if "logits" not in outputs or len(outputs["logits"]) != 2 or outputs["logits"][1] != classes:
        raise InputError(f"does not return logits of {classes} classes")
