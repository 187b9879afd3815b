"""The model of a bundle on ONNX Runtime, and its predictions for canonical columns and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from seqclf.bundle.manifest import MODEL, encoder_file, read_bundle
from seqclf.bundle.predictions import (
    Counts,
    Predictions,
    Result,
    SequencePrediction,
    count_strange,
    predictions_table,
    row_ids,
)
from seqclf.bundle.python_rows import require_unchanged_fields, to_columns
from seqclf.bundle.sequence_reader import CHUNK, BatchLimits, BatchReader, UntilHalted, WholeSequences, read_sequences
from seqclf.bundle.session import check_model, open_session, thread_count
from seqclf.bundle.step_model import STEP, Read, StepModel, open_step
from seqclf.bundle.windows import Window, row_windows, source_windows, table_source
from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoders import encode, input_specs, load_encoders
from seqclf.data.encoding.row_checks import EMPTY_REASON, check_rows, too_long_reason
from seqclf.data.ragged import Ragged, lengths_or_zero, take
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Label, typed_labels
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision, override_threshold
from seqclf.evaluation.tokens_curve import TokensCurve
from seqclf.system.state_validation import error_context, parse_json

WINDOW_ROWS = 16384
NOT_FINITE = "gives logits that are not finite"  # of a row that is refused
MAX_ENCODED_TOKENS = 500_000  # at a time, so that long sequences of wide tokens fit into memory


class BundleModel:
    """The model of a bundle with its encoders and its decision: canonical columns in, predictions out.

    `Classifier` is the face of it for users; its arguments are documented there.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str = "auto",
        threads: int | None = None,
        threshold: str | float | None = None,
        budget: float | None = None,
    ):
        self.folder = folder = Path(folder)
        self.device, self.threads = device, thread_count(threads)
        # First: it compares the hash of every file before one of them is parsed.
        self.manifest, self._files = read_bundle(folder)
        self.classes: list[str] = self.manifest["classes"]
        self.schema = stored_schema(self.manifest["schema"])
        self.labels = typed_labels(self.classes, self.schema.label_type)
        decision = Decision.from_dict(self.manifest["decision"])
        self.decision = override_threshold(decision, threshold, self.manifest["positive"], self.classes)

        with error_context(f"bundle={folder}", "export the bundle anew"):
            self.encoders = load_encoders(self.schema.fields, lambda name: parse_json(self._files[encoder_file(name)]))
        self.field_of_column = {field.columns[0]: field.name for field in self.schema.fields if len(field.columns) == 1}
        self._ignored = {str(self.schema.label), str(self.schema.id), *self.schema.ignored}
        self.specs = input_specs(self.encoders, self.classes)
        self.reader = self._open_reader(budget)
        # Streams may be opened later, when another bundle may lie in the folder.
        self._files = {name: content for name, content in self._files.items() if name == STEP}
        self.provider: str = self.reader.session.provider
        self.no_cuda: str | None = self.reader.session.no_cuda
        on_cpu = None if self.no_cuda is None else f"device={device}: takes {self.provider}: {self.no_cuda}"
        self.warnings = [line for line in (self._drop_guarantees(budget), on_cpu) if line is not None]

    def _open_reader(self, budget: float | None) -> BatchReader:
        """Open the model that predictions are made by. Raises InputError for a budget that it cannot keep."""
        halting = self.manifest.get("halting")
        if halting is not None:
            return UntilHalted(self.open_step(TokensCurve.from_manifest(halting).threshold_of(budget)), CHUNK)
        if budget is not None:
            raise InputError(
                f"budget={budget}",
                "the model of this bundle always reads whole sequences",
                "remove budget, or train with model=adaptive",
            )
        session = open_session(self.folder / MODEL, self.device, content=self._files[MODEL])
        with error_context(f"bundle={self.folder}: {MODEL}", "export the bundle anew"):
            check_model(session, self.specs, len(self.classes))
        return WholeSequences(session, [spec["name"] for spec in self.specs])

    def _drop_guarantees(self, budget: float | None) -> str | None:
        """Forget guarantees that were given for another share of tokens than `budget`. Return a warning then."""
        if budget is None or not self.decision.targets:
            return None
        curve = TokensCurve.from_manifest(self.manifest["halting"])
        if curve.threshold_of(budget) == curve.threshold_of(None):
            return None
        self.decision = replace(self.decision, targets=())
        return (
            f"budget={budget}: the guarantees and the threshold of the bundle were set for the tokens that it reads by "
            "default; they hold without budget only"
        )

    def open_step(self, threshold: float | None) -> StepModel:
        if "step" not in self.manifest:
            raise InputError(
                f"bundle={self.folder}",
                "its model reads whole sequences only",
                "recurrent ones do not, if trained with model.bidirectional=false and model.members=1; export "
                "bundles of older versions anew",
            )
        return open_step(
            self.folder,
            self.manifest,
            self.specs,
            device=self.device,
            threshold=threshold,
            content=self._files[STEP],
        )

    def to_columns(self, sequences: list[Any]) -> tuple[pa.RecordBatch, list[str | None]]:
        """Return canonical columns of Python values, and the error of each row. See `python_rows.to_columns`."""
        return to_columns(sequences, self.encoders, self.field_of_column, self._ignored)

    def sequence_predictions(
        self, predictions: Predictions, value_errors: Sequence[str | None]
    ) -> list[SequencePrediction]:
        """Return the prediction of each row, or its error: that of its values (see `to_columns`) comes first."""
        results: list[SequencePrediction] = []
        labels: list[Label] = self.labels.to_pylist()
        for row, value_error in enumerate(value_errors):
            error = value_error or predictions.errors[row]
            label = probability = by_label = None
            if error is None:
                index, probabilities = int(predictions.predicted[row]), predictions.probabilities[row].tolist()
                label, probability = labels[index], probabilities[index]
                by_label = dict(zip(labels, probabilities, strict=True))
            result: SequencePrediction = {
                "prediction": label,
                "probability": probability,
                "probabilities": by_label,
                "error": error,
            }
            if predictions.tokens_read is not None:
                result["tokens_read"] = int(predictions.tokens_read[row])
            results.append(result)
        return results

    def predictions_of(self, logits: np.ndarray) -> list[SequencePrediction]:
        """Return the predictions of (N, C) logits, with an error where they are not finite."""
        finite = np.isfinite(logits).all(axis=1)
        errors = [None if usable else f"{MODEL} {NOT_FINITE}" for usable in finite]
        logits = np.where(finite[:, None], logits, np.nan)
        probabilities, predicted = self.decision.probabilities(logits), self.decision.choose(np.nan_to_num(logits))
        rows = Predictions(logits, probabilities, predicted, finite.astype(np.int64), errors)
        return self.sequence_predictions(rows, [None] * len(logits))

    def parse(self, text: str) -> Any:
        """Read a sequence from the command line: running text as it is, tokens as JSON or as in the field's cells."""
        return self.encoders[self.schema.fields[0].name].parse(text)

    def windows(
        self,
        source: Source,
        label: str | None = None,
        table: LabelTable | None = None,
        group: str | None = None,
    ) -> Iterator[Window]:
        """Read a source in windows of `WINDOW_ROWS` rows, for `predict_batch`. See `source_windows`."""
        title = f"predicting {source.short_name}"
        return source_windows(
            self.schema, source, label, table, group, title=title, unit="rows", window_rows=WINDOW_ROWS
        )

    def table_source(self, data: Any) -> Source:
        """Return the source that reads a table. See `windows.table_source`."""
        return table_source(self.schema, self.manifest["reader"]["query"], data)

    def row_windows(self, sequences: list[Any], window_rows: int | None = None) -> Iterator[Window]:
        """Return the windows of Python rows, of `window_rows` or `WINDOW_ROWS` rows each."""
        self.require_unchanged_fields()
        return row_windows(sequences, self.to_columns, window_rows or WINDOW_ROWS)

    def require_unchanged_fields(self) -> None:
        """Raise InputError if the query of the bundle changes the fields, which it cannot do to Python rows."""
        remedy = "give a file, or a table: predict(pyarrow.Table.from_pylist(rows))"
        require_unchanged_fields(self.manifest["reader"]["query"], self.schema, f"bundle={self.folder}", remedy)

    def predict_source(
        self,
        source: Source,
        label: str | None = None,
        table: LabelTable | None = None,
        group: str | None = None,
    ) -> Iterator[tuple[SourceRows, Predictions]]:
        """Read the files of a source in windows of `WINDOW_ROWS` rows, and predict each window.

        `label`, `group`: columns to read along as `label`, and as GROUP and GROUP_NAME of `schema.casts`. `table`: a
        label table to join by id instead. Raises InputError if the source is SQL.
        """
        return (
            (window.rows, self.predict_columns(window.columns)) for window in self.windows(source, label, table, group)
        )

    def predict_batch(self, columns: pa.RecordBatch, first_row: int) -> Result:
        """Return the table that the predict command writes for one window, and its counts.

        The result depends on the arguments alone, so windows may be predicted in any order and process.

        Args:
            columns: (N,) rows of canonical columns (see `Window.columns`).
            first_row: number of the first row from 1, which is its id where the columns have no id.
        """
        predictions = self.predict_columns(columns)
        table = predictions_table(predictions, self.classes, self.labels, row_ids(columns, first_row))
        return Result(table, self.counts(predictions))

    def predict_windows(self, source: Source) -> Iterator[Result]:
        """Predict a source window by window, in order."""
        return (self.predict_batch(window.columns, window.first_row) for window in self.windows(source))

    def predict_columns(self, columns: pa.RecordBatch) -> Predictions:
        """Predict canonical columns (see `SourceReader.read`), in their order."""
        problems = check_rows(columns, self.schema, self.encoders, labelled=False)
        logits = np.full((columns.num_rows, len(self.classes)), np.nan, np.float32)
        lengths, tokens_read = np.zeros((2, columns.num_rows), np.int64)
        usable = np.flatnonzero(problems.usable)
        tokens = np.zeros(3, np.int64)  # all, unknown, far
        for rows in self._parts(columns, usable):
            sequences, original_lengths = encode(self.encoders, columns.take(pa.array(rows)), self.schema.truncation)
            limit, column = self.schema.max_length, self.schema.fields[0].column
            problems.mark(rows[original_lengths == 0], column, EMPTY_REASON)
            if limit is not None and self.schema.truncate == "error":
                problems.mark(rows[original_lengths > limit], column, too_long_reason(original_lengths, self.schema))
            tokens += len(next(iter(sequences.fields.values()))), *count_strange(self.specs, sequences.fields)
            encoded = np.flatnonzero(problems.usable[rows])
            result = self.read(take(sequences, encoded))
            finite = np.isfinite(result.logits).all(axis=1)
            problems.mark(rows[encoded[~finite]], MODEL, NOT_FINITE)
            done = encoded[finite]
            logits[rows[done]], tokens_read[rows[done]] = result.logits[finite], result.tokens[finite]
            lengths[rows[done]] = original_lengths[done]
        reasons = {row: f"{problem.column} {problem.reason}" for row, problem in problems.first_problems.items()}
        errors = [reasons.get(row) for row in range(columns.num_rows)]
        probabilities = self.decision.probabilities(logits)
        # Refused rows have NaN logits, which cannot be compared. Whatever is chosen for them is replaced by -1.
        predicted = self.decision.choose(np.nan_to_num(logits))
        predicted = np.where(lengths > 0, predicted, -1)
        read = tokens_read if self.may_halt else None
        return Predictions(logits, probabilities, predicted, lengths, errors, read, *tokens.tolist())

    def _parts(self, columns: pa.RecordBatch, rows: np.ndarray) -> list[np.ndarray]:
        """Cut `rows` into parts of about `MAX_ENCODED_TOKENS` tokens. Texts, which are no tokens yet, stay together."""
        first = columns.column(self.schema.fields[0].name)
        if not len(rows) or not pa.types.is_list(first.type):
            return [rows] if len(rows) else []
        part = np.cumsum(lengths_or_zero(first)[rows], dtype=np.int64) // MAX_ENCODED_TOKENS
        return np.split(rows, np.flatnonzero(np.diff(part)) + 1)

    def logits(self, sequences: Ragged) -> np.ndarray:
        """(N, C) logits of encoded sequences."""
        return self.read(sequences).logits

    def read(self, sequences: Ragged) -> Read:
        """Return the logits (N, C) of encoded sequences, and the tokens (N,) of each that were read."""
        limits = BatchLimits.of(self.reader.session, self.threads, by_chunks=self.may_halt)
        return read_sequences(self.reader, sequences, len(self.classes), limits)

    def kept_lengths(self, predictions: Predictions) -> np.ndarray:
        """Return the tokens (N,) of each row after truncation, 0 in refused rows."""
        limit = self.schema.truncation.max_length if self.schema.truncation.cuts else None
        return predictions.lengths if limit is None else np.minimum(predictions.lengths, limit)

    def counts(self, predictions: Predictions) -> Counts:
        """Count the rows and tokens of predictions."""
        rows, read = len(predictions.errors), predictions.tokens_read
        return Counts(
            rows=rows,
            refused=rows - predictions.errors.count(None),
            tokens=int(self.kept_lengths(predictions).sum()),
            tokens_read=0 if read is None else int(read.sum()),
            encoded=predictions.tokens,
            unknown=predictions.unknown,
            far=predictions.far,
        )

    @property
    def reads_trees(self) -> bool:
        """True if tokens are nodes of trees, which have parents."""
        return any(spec["kind"] == "parents" for spec in self.specs)

    @property
    def may_halt(self) -> bool:
        """True if the model decides for each sequence how many tokens it reads."""
        return isinstance(self.reader, UntilHalted)
