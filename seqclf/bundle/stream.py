"""Incremental prediction of sequences whose tokens arrive in parts, from all tokens that have arrived so far."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.batching.collate import pad
from seqclf.bundle.predictions import SequencePrediction, no_prediction
from seqclf.bundle.sequence_reader import ReaderLimits, batches_by_length
from seqclf.bundle.session import explain_run_errors, require_shape
from seqclf.bundle.step_model import STEP, StepModel
from seqclf.data.encoding.encoders import encode, static_of, tokens_of
from seqclf.data.encoding.row_checks import check_rows
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.errors import InputError
from seqclf.models.onnx.checks import EMBEDDING

if TYPE_CHECKING:
    from seqclf.bundle.model import BundleModel


class StreamPrediction(SequencePrediction):
    """Prediction for one sequence, from the tokens that have arrived so far.

    `tokens`: number of tokens that have arrived. `halted`: True if the model has stopped early, so that the prediction
    is final and later tokens are ignored.
    """

    tokens: int
    halted: bool


class _Open(NamedTuple):
    """A sequence that may get more tokens: its row of each model state, and its static fields as given."""

    states: list[np.ndarray]
    static: dict[str, Any]
    tokens: int
    prediction: StreamPrediction
    last: Any  # sort key of the last token that was read (see `EventOrder.keys`), or None


class Stream:
    """A set of open sequences (sequences that may get more tokens), with the model state of each sequence.

    ```python
    stream = Classifier("runs/alerts/bundle").stream()
    stream.read({"host 1": ["boot", "login"], "host 2": ["boot"]})["host 1"]["prediction"]
    stream.read({"host 1": ["sudo"]})  # prediction of three tokens, one newly computed
    stream.close("host 1")
    ```

    Static fields are given with the first tokens of a sequence, and may be left out later. Raises InputError if the
    model can only read whole sequences, or if the encoding of a token depends on others, such as the time since the
    previous one.
    """

    def __init__(self, classifier: BundleModel, model: StepModel):
        self.classifier = classifier
        self.model = model
        self.sequences: dict[Hashable, _Open] = {}
        for name, encoder in tokens_of(classifier.encoders).items():
            if not encoder.encodes_token_by_token:
                problem = f"a token of the {encoder.field.kind} field {name} depends on other tokens of its sequence"
                raise InputError("stream", problem, "use predict with whole sequences")
        if classifier.schema.max_length is not None:
            problem = "the bundle limits sequences to data.max_length tokens"
            raise InputError("stream", problem, "train without it, or use predict")

    def __len__(self) -> int:
        return len(self.sequences)

    def read(self, tokens: Mapping[Hashable, Any]) -> dict[Hashable, StreamPrediction]:
        """Read the next tokens of open or new sequences. Return a dict key of a sequence → prediction.

        `tokens`: dict key → next tokens, in the form of a sequence for `Classifier.predict`. If they are rejected, the
        prediction has an error, and the sequence does not change.
        """
        if not isinstance(tokens, Mapping):
            raise InputError("stream", f"got {type(tokens).__name__}", "give the next tokens by the key of a sequence")
        running = [key for key in tokens if key not in self.sequences or not self.sequences[key].prediction["halted"]]
        columns, errors = self.classifier.python_rows.to_columns([self._completed(key, tokens[key]) for key in running])
        last = {}
        for row, key in enumerate(running):
            try:
                last[key] = None if errors[row] else self._last(key, tokens[key])
            except ValueError as error:
                errors[row] = str(error)
        problems = check_rows(columns, self.classifier.schema, self.classifier.encoders, labelled=False)
        for row, problem in problems.first_problems.items():
            errors[row] = errors[row] or f"{problem.column} {problem.reason}"
        static = {key: self._static(columns, row) for row, key in enumerate(running)}
        for row, key in enumerate(running):
            if key in self.sequences and static[key] != (before := self.sequences[key].static) and errors[row] is None:
                name = next(name for name in before if static[key][name] != before[name])
                errors[row] = f"{name} changes from {before[name][0]} to {static[key][name][0]}, and is a static field"
        usable = np.array([row for row, error in enumerate(errors) if error is None], np.int64)
        results = {key: self._refused(key, error) for key, error in zip(running, errors, strict=True) if error}
        if len(usable):
            sequences = encode(self.classifier.encoders, columns.take(usable), NO_TRUNCATION).sequences
            limits = ReaderLimits.of(self.model.session, threads=1, by_chunks=False)
            for rows in batches_by_length(sequences.lengths, limits.max_tokens):
                results |= self._advance([running[usable[row]] for row in rows], *pad(sequences, rows), last, static)
        # Return copies, so that the caller cannot change the predictions in the stream.
        return {key: {**(results.get(key) or self.sequences[key].prediction)} for key in tokens}

    def _completed(self, key: Hashable, tokens: Any) -> Any:
        rows = self.classifier.python_rows
        if key not in self.sequences or not self.sequences[key].static:
            return tokens
        try:
            row = rows.as_dict(tokens)
        except ValueError:  # `to_columns` tells the reason
            return tokens
        given = {rows.field_of_column.get(name, name) for name in row}
        return {**row, **{name: cell for name, cell in self.sequences[key].static.items() if name not in given}}

    def _static(self, columns: pa.RecordBatch, row: int) -> dict[str, Any]:
        """Return the canonical cells of the static fields of a row."""
        return {name: columns.column(name)[row].as_py() for name in static_of(self.classifier.encoders)}

    def close(self, key: Hashable) -> None:
        self.sequences.pop(key, None)

    def _last(self, key: Hashable, tokens: Any) -> Any:
        """Return the sort key (see `EventOrder.keys`) of the last token, or raise ValueError if one comes too late."""
        rows = self.classifier.python_rows
        before = self.sequences[key].last if key in self.sequences else None
        keys = None if rows.order is None else rows.order.keys(rows.as_dict(tokens))
        if keys and before is not None and min(keys) < before:
            raise ValueError(f"{self.classifier.schema.order_by[0]} goes back: an earlier read had later tokens")
        return max(keys) if keys else before

    def _refused(self, key: Hashable, error: str) -> StreamPrediction:
        count = self.sequences[key].tokens if key in self.sequences else 0
        return {**no_prediction(error), "tokens": count, "halted": False}

    def _advance(
        self,
        keys: list[Hashable],
        fields: Mapping[str, np.ndarray],
        lengths: np.ndarray,
        last: Mapping[Hashable, Any],
        static: Mapping[Hashable, dict[str, Any]],
    ) -> dict[Hashable, StreamPrediction]:
        new = self.model.start(1)
        before = [self.sequences[key].states if key in self.sequences else new for key in keys]
        states = [np.concatenate(rows) for rows in zip(*before, strict=True)]
        with explain_run_errors(STEP):
            chunk = self.model.run(fields, lengths, states)
            require_shape(STEP, chunk.logits, len(keys), len(self.classifier.classes))
        predictions = self.classifier.predictions_of(chunk.logits)
        results: dict[Hashable, StreamPrediction] = {}
        for row, (key, prediction) in enumerate(zip(keys, predictions, strict=True)):
            count = int(lengths[row]) + (self.sequences[key].tokens if key in self.sequences else 0)
            results[key] = {**prediction, "tokens": count, "halted": bool(chunk.halted[row])}
            for name, values in chunk.extra.items():
                if name != EMBEDDING or name in self.classifier.extra:
                    results[key][name] = values[row].tolist()  # type: ignore[literal-required]
            # Copy the states, because a view would keep the states of the whole batch in memory.
            after = [] if chunk.halted[row] else [values[row : row + 1].copy() for values in chunk.states]
            self.sequences[key] = _Open(after, static[key], count, results[key], last[key])
        return results
