"""`BundleModel`: runs the model of a bundle on ONNX Runtime, and predicts canonical columns and files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.bundle.drift import NO_LIMITS, InputLimits, RowSample
from seqclf.bundle.manifest import MODEL, encoder_file, read_bundle
from seqclf.bundle.predictions import Predictions, Result, SequencePrediction, no_prediction, predictions_table, row_ids
from seqclf.bundle.python_rows import PythonRows
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.bundle.running import RUNNING_ROWS, after_each_event, running_outputs, running_reader
from seqclf.bundle.sequence_reader import MemoryEstimate, ReaderLimits, WholeSequences, read_sequences
from seqclf.bundle.session import check_model, empty_outputs, open_session, runs_on_gpu, thread_count
from seqclf.bundle.step_model import HALTED, STEP, Read, StepModel, open_step
from seqclf.bundle.windows import (
    NO_LABELS,
    TABLE,
    LabelColumns,
    RunWindows,
    Window,
    run_windows,
    source_windows,
    table_source,
)
from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoders import encode, input_specs, load_encoders
from seqclf.data.encoding.row_checks import StrangeMeasures, check_encoded_lengths, check_rows
from seqclf.data.field_spec import tree_spec
from seqclf.data.ragged import Ragged, lengths_or_zero, take
from seqclf.data.reading.queries import passes_through
from seqclf.data.reading.sources import Source, fetched
from seqclf.data.schema.casts import GROUP
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Label, typed_labels
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.models.onnx.checks import EMBEDDING
from seqclf.system.state_validation import error_context, parse_json

WINDOW_ROWS = 16384
NOT_FINITE = "gives logits that are not finite"  # error text of a rejected row
PLAIN_ROWS = 512  # largest number of Python rows that are encoded without Arrow, all at once
MAX_ENCODED_TOKENS = 500_000  # approximate number of tokens that are encoded at a time, to limit the memory use


class BundleModel:
    """The model, the encoders and the decision of a bundle, for predictions of canonical columns.

    Canonical columns are Arrow columns of fixed types, one per field (see `SourceReader.read`). `Classifier` documents
    the arguments.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        threshold: str | float | None = None,
        embeddings: bool = False,
        running: bool = False,
    ):
        self.folder = folder = Path(folder)
        options = {"device": device, "threads": threads, "threshold": threshold}
        options |= {"embeddings": embeddings, "running": running}
        self._opened = type(self), folder.absolute(), options  # what opens the same classifier again
        self.device, self.threads = device, thread_count(threads)
        # `read_bundle` compares the hash of every file before any file is parsed.
        self.manifest, files = read_bundle(folder)
        self.classes: list[str] = self.manifest["classes"]
        self.schema = stored_schema(self.manifest["schema"])
        self.labels = typed_labels(self.classes, self.schema.label_type)
        decision = Decision.from_dict(self.manifest["decision"])
        self.decision = override_threshold(decision, threshold, self.manifest["positive"], self.classes)

        with error_context(f"bundle={folder}", "export the bundle anew"):
            self.encoders = load_encoders(self.schema.fields, lambda name: parse_json(files[encoder_file(name)]))
        self.python_rows = PythonRows(self.schema, self.encoders)
        self.specs = input_specs(self.encoders, self.classes)
        self.strange = StrangeMeasures(self.encoders)
        self.reference = ReferenceData(self.encoders, self.classes, self.manifest["positive"])
        with error_context(f"bundle={folder}: reference", "export the bundle anew"):
            self.reference.restore(self.manifest.get("reference", {}))
        # The content of step.onnx stays in memory, because `stream` may be called after the folder was replaced.
        self._step = files.get(STEP)
        self.reads_trees = tree_spec(self.specs) is not None  # True if the tokens are nodes of trees
        # True if the model may stop reading before the end of a sequence.
        self.may_halt = HALTED in self.manifest.get("step", {"outputs": ()})["outputs"]
        self.reader = self._open_reader(files[MODEL])
        self.reader = self.embedding_reader() if embeddings else self.reader
        self.running_reader = running_reader(self) if running else None
        self.extra = running_outputs(self) if running else self.reader.extra
        may_outgrow = self.reader.open_step is None and not runs_on_gpu(self.reader.session)
        self.memory_estimate = MemoryEstimate(files[MODEL], folder, self.specs) if may_outgrow else None
        self.provider: str = self.reader.session.provider
        self.no_cuda: str | None = self.reader.session.no_cuda
        self.warnings = [] if self.no_cuda is None else [f"device={device}: takes {self.provider}: {self.no_cuda}"]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path and the digest of the bundle, which is opened again: a session cannot be pickled."""
        return _reopened, (*self._opened, self.manifest["digest"])

    def _open_reader(self, content: bytes) -> WholeSequences:
        session = open_session(self.folder / MODEL, self.device, content=content)
        with error_context(f"bundle={self.folder}: {MODEL}", "export the bundle anew"):
            check_model(session, self.specs, len(self.classes))
            extra = empty_outputs(session, self.manifest["outputs"][1:])
        open_chunks = None
        if self._step is not None and set(extra) <= set(self.manifest["step"]["outputs"]):
            step = partial(open_step, self.folder, self.manifest, self.specs)  # no cycle with `self`
            open_chunks = partial(step, device=self.device, content=self._step)
        halts = self.may_halt and open_chunks is not None
        return WholeSequences(session, [spec["name"] for spec in self.specs], open_chunks, extra, halts=halts)

    def embedding_reader(self) -> WholeSequences:
        """Return the reader with the output `embedding`. Raises InputError if the network has none."""
        if not self.manifest.get(EMBEDDING):
            remedy = "define embedding_layers in the class of the network, and export anew"
            raise InputError(f"bundle={self.folder}", "its network has no embedding", remedy)
        with error_context(f"bundle={self.folder}: {MODEL}", "export the bundle anew"):
            return self.reader.with_output(empty_outputs(self.reader.session, [EMBEDDING]))

    def open_step(self) -> StepModel:
        """Open the model that reads chunks of tokens."""
        if self._step is None:
            remedy = "train with model=lstm model.bidirectional=false model.members=1"
            raise InputError(f"bundle={self.folder}", "its model reads whole sequences only", remedy)
        return open_step(self.folder, self.manifest, self.specs, device=self.device, content=self._step)

    def sequence_predictions(
        self, predictions: Predictions, value_errors: Sequence[str | None]
    ) -> list[SequencePrediction]:
        """Return a dict for each row: the prediction, or its error, that of `PythonRows.to_columns` first."""
        results: list[SequencePrediction] = []
        labels: list[Label] = self.labels.to_pylist()
        for row, value_error in enumerate(value_errors):
            error = value_error or predictions.errors[row]
            result = no_prediction(error)
            if error is None:
                index, probabilities = int(predictions.predicted[row]), predictions.probabilities[row].tolist()
                result["prediction"], result["probability"] = labels[index], probabilities[index]
                result["probabilities"] = dict(zip(labels, probabilities, strict=True))
            for name, values in (*predictions.extra.items(), *predictions.strange.items()):
                result[name] = None if error else values[row].tolist()  # type: ignore[literal-required]
            results.append(result)
        return results

    def predictions_of(self, logits: np.ndarray) -> list[SequencePrediction]:
        """Convert logits (N, C) to predictions. A row with NaN or infinite logits gets an error."""
        finite = np.isfinite(logits).all(axis=1)
        errors = [None if usable else f"{MODEL} {NOT_FINITE}" for usable in finite]
        logits = np.where(finite[:, None], logits, np.nan)
        probabilities, predicted = self.decision.probabilities(logits), self.decision.choose(np.nan_to_num(logits))
        one = finite.astype(np.int64)  # a length above 0, as of any predicted row
        rows = Predictions(logits, probabilities, predicted, one, one, errors)
        return self.sequence_predictions(rows, [None] * len(logits))

    def parse(self, text: str) -> Any:
        """Parse a sequence of the command line: free text, or tokens as JSON or as in a cell of the data file."""
        return self.encoders[self.schema.fields[0].name].parse(text)

    def windows(self, source: Source, columns: LabelColumns = NO_LABELS) -> Iterator[Window]:
        """Read a source in windows of `WINDOW_ROWS` rows, for `predict_batch`. See `source_windows`."""
        size = RUNNING_ROWS if self.running_reader else WINDOW_ROWS
        return source_windows(self.schema, source, columns, verb="predicting", unit="rows", window_rows=size)

    def table_source(self, data: Any) -> Source:
        """Return a source that reads the rows of a table (see `windows.table_source`), or of the file of a path."""
        if isinstance(data, (str, Path)):
            return fetched(Source(str(data), TABLE, **self.manifest["reader"]))
        return table_source(self.schema, self.manifest["reader"]["query"], data)

    def row_columns(
        self, sequences: Sequence[Any], window_rows: int | None = None
    ) -> Iterator[tuple[pa.RecordBatch, list[str | None]]]:
        """Yield canonical columns of Python rows, `window_rows` at a time (or `WINDOW_ROWS`), and their errors."""
        self.require_unchanged_fields()
        step = window_rows or WINDOW_ROWS
        for start in range(0, len(sequences), step):
            yield self.python_rows.to_columns(sequences[start : start + step])

    def require_unchanged_fields(self) -> None:
        """Raise InputError if `data.query` of the bundle, which is not applied to Python rows, changes the fields.

        It would be unclear if a row holds the value before or after the query.
        """
        query = self.manifest["reader"]["query"]
        if query is not None and not passes_through(query, [column for _, column in self.schema.columns]):
            problem = "its data.query changes the fields, and is applied to tables and files only"
            remedy = "give a file, or a table: predict(pyarrow.Table.from_pylist(rows))"
            raise InputError(f"bundle={self.folder}", problem, remedy)

    def predict_rows(self, sequences: Sequence[Any], limits: InputLimits = NO_LIMITS) -> Iterator[SequencePrediction]:
        """Predict Python rows, within limits. A few rows that need no conversion are encoded without Arrow."""
        self.require_unchanged_fields()
        if not limits and 0 < len(sequences) <= PLAIN_ROWS:
            encoded = self.python_rows.to_sequences(sequences, self.schema.max_length)
            predictions = None if encoded is None else self._predict_encoded(encoded)
            if predictions is not None:
                yield from self.sequence_predictions(predictions, [None] * len(sequences))
                return
        errors, sample = deque[list[str | None]](), RowSample(self.reference)

        def predicted() -> Iterator[Predictions]:
            for columns, value_errors in self.row_columns(sequences):
                errors.append(value_errors)
                yield self.predict_columns(columns, sample if limits else None)

        for predictions in limits.checked(predicted(), self.strange, sample):
            yield from self.sequence_predictions(predictions, errors.popleft())

    def _predict_encoded(self, sequences: Ragged) -> Predictions | None:
        """Predict encoded sequences. Return None if one needs too much memory, or if a logit is not finite."""
        if self.memory_estimate is not None and self.memory_estimate.errors(sequences):
            return None
        logits, extra = self.read(sequences)
        if not np.isfinite(logits).all():
            return None
        probabilities, predicted = self.decision.probabilities(logits), self.decision.choose(logits)
        lengths, strange = sequences.lengths, self.strange.measure(sequences).columns
        return Predictions(logits, probabilities, predicted, lengths, lengths, [None] * len(lengths), extra, strange)

    def predict_source(
        self, source: Source, columns: LabelColumns = NO_LABELS, sample: RowSample | None = None
    ) -> Iterator[tuple[SourceRows, Predictions]]:
        """Predict the rows of a source, one window of `WINDOW_ROWS` rows after the other. Raises InputError for SQL.

        `columns`: those of labels, groups and times. `sample`: see `predict_columns`.
        """
        windows = self.windows(source, columns)
        return ((window.rows, self.predict_columns(window.columns, sample)) for window in windows)

    def predict_batch(self, columns: pa.RecordBatch, first_row: int, sample: RowSample | None = None) -> Result:
        """Predict one window. Return the output table of the predict command, and the counts of rows and tokens.

        Windows may be predicted in any order and in any process. `columns`: canonical columns (see `Window.columns`).
        `first_row`: number of the first row, from 1; without a column `id`, row numbers are the ids. If
        `running`, the table has a line for each event.
        """
        predictions, ids = self.predict_columns(columns, sample), row_ids(columns, first_row)
        counts = predictions.counts
        if self.running_reader is not None:
            predictions, rows = after_each_event(self, predictions, columns)
            ids = ids.take(pa.array(rows))
        return Result(predictions_table(predictions, self.classes, self.labels, ids), counts)

    def predict_windows(
        self, source: Source, sample: RowSample | None = None, run: RunWindows = run_windows
    ) -> Iterator[Result]:
        """Predict the rows of a source. Yield one result per window, in the order of the rows. `run`: see there."""
        return run(
            self.windows(source),
            lambda windows: ([self.predict_batch(window.columns, window.first_row, sample)] for window in windows),
        )

    def predict_columns(
        self, columns: pa.RecordBatch, sample: RowSample | None = None, reader: WholeSequences | None = None
    ) -> Predictions:
        """Predict each row of canonical columns (see `SourceReader.read`), and add them to the `sample` of new rows.

        `reader`: reader with other outputs, None for that of the classifier.
        """
        reader = reader or self.reader
        problems = check_rows(columns, self.schema, self.encoders, labelled=False)
        logits = np.full((columns.num_rows, len(self.classes)), np.nan, np.float32)
        lengths, kept = np.zeros((2, columns.num_rows), np.int64)
        extra = {name: np.zeros((columns.num_rows, *each.shape[1:]), each.dtype) for name, each in reader.extra.items()}
        usable = np.flatnonzero(problems.usable)
        tokens = np.zeros(3, np.int64)  # all tokens, tokens with unknown values, tokens with far numbers
        strange = {name: np.zeros(columns.num_rows, np.float32) for name in self.strange.names}
        for rows in self._parts(columns, usable):
            sequences, original_lengths = encode(self.encoders, columns.take(pa.array(rows)), self.schema.truncation)
            check_encoded_lengths(rows, original_lengths, self.schema, problems)
            too_large = {} if self.memory_estimate is None else self.memory_estimate.errors(sequences)
            for row, reason in too_large.items():
                problems.mark(rows[[row]], self.schema.token_fields[0].column, reason)
            found = self.strange.measure(sequences)
            tokens += sequences.offsets[-1], found.unknown_tokens, found.far_tokens
            for name, values in strange.items():
                values[rows] = found.columns[name]
            encoded = np.flatnonzero(problems.usable[rows])
            sequences = take(sequences, encoded)
            result = self.read(sequences, reader)
            finite = np.isfinite(result.logits).all(axis=1)
            problems.mark(rows[encoded[~finite]], MODEL, NOT_FINITE)
            done = rows[encoded[finite]]
            logits[done] = result.logits[finite]
            for name, values in extra.items():
                values[done] = result.extra[name][finite]
            lengths[done], kept[done] = original_lengths[encoded[finite]], sequences.lengths[finite]
            if sample is not None:
                groups, probabilities = _group_keys(columns, done), self.decision.probabilities(logits[done])
                sample.add(PredictedRows(take(sequences, np.flatnonzero(finite)), lengths[done], probabilities, groups))
        reasons = {row: f"{problem.column} {problem.reason}" for row, problem in problems.first_problems.items()}
        errors = [reasons.get(row) for row in range(columns.num_rows)]
        probabilities = self.decision.probabilities(logits)
        # The logits of a rejected row are NaN, which `choose` does not take.
        predicted = np.where(lengths > 0, self.decision.choose(np.nan_to_num(logits)), -1)
        return Predictions(logits, probabilities, predicted, lengths, kept, errors, extra, strange, *tokens.tolist())

    def _parts(self, columns: pa.RecordBatch, rows: np.ndarray) -> list[np.ndarray]:
        """Split `rows` into parts of about `MAX_ENCODED_TOKENS` tokens, and free text, of unknown length, into one."""
        first = columns.column(self.schema.fields[0].name)
        if not len(rows) or not pa.types.is_list(first.type):
            return [rows] if len(rows) else []
        part = np.cumsum(lengths_or_zero(first)[rows], dtype=np.int64) // MAX_ENCODED_TOKENS
        return np.split(rows, np.flatnonzero(np.diff(part)) + 1)

    def logits(self, sequences: Ragged) -> np.ndarray:
        """Return the logits (N, C) of encoded sequences."""
        return self.read(sequences).logits

    def read(self, sequences: Ragged, reader: WholeSequences | None = None) -> Read:
        """Return the logits (N, C) of encoded sequences, and the other outputs."""
        reader = reader or self.reader
        limits = ReaderLimits.of(reader.session, self.threads, by_chunks=self.may_halt or reader.each)
        return read_sequences(reader, sequences, len(self.classes), limits)


def _reopened(kind: type[BundleModel], folder: Path, options: dict[str, Any], digest: str) -> BundleModel:
    """Open the bundle of a pickled classifier. Raises InputError if it is missing or another one."""
    opened = kind(folder, **options)
    if opened.manifest["digest"] != digest:
        raise InputError(f"bundle={folder}", "is not the one that was pickled", "open and pickle the classifier anew")
    return opened


def _group_keys(columns: pa.RecordBatch, rows: np.ndarray) -> np.ndarray | None:
    """Return the group key (M,) of the rows at the positions `rows`. A row without a group is a group of its own."""
    if GROUP not in columns.schema.names:
        return None
    keys = columns.column(GROUP).fill_null(-1).to_numpy(zero_copy_only=False)[rows]
    return np.where(keys < 0, -1 - rows, keys)
