"""Prediction with a bundle on ONNX Runtime, without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa

from seqclf.bundle import explanation
from seqclf.bundle.drift import NO_LIMITS, InputLimits, RowSample
from seqclf.bundle.explanation import Explanation
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import SequencePrediction, predictions_schema, require_usable, to_library
from seqclf.bundle.running import RUNNING_ROWS, running_outputs, running_reader
from seqclf.bundle.soundness import CheckedBundle, Soundness, examine
from seqclf.bundle.stream import Stream
from seqclf.bundle.windows import id_type
from seqclf.data.reading.relations import FORMATS
from seqclf.data.reading.sources import suffix_of
from seqclf.data.reading.tables import is_pandas, is_table
from seqclf.errors import InputError
from seqclf.models.onnx.checks import EMBEDDING

SHOWN_CLASSES = 10


class Classifier(BundleModel):
    """A trained classifier that is opened from a bundle, and that runs on ONNX Runtime without PyTorch.

    ```python
    classifier = Classifier("runs/fraud/bundle", threshold=0.2)
    classifier.predict(frame)                   # a data frame in, a data frame out
    classifier.predict("new.parquet")           # an Arrow table of the rows of a file
    classifier.predict([[3, 1, 4]])[0]["prediction"]
    classifier.predict_proba(frame)             # (N, C), in the order of classes_
    classifier.embed(frame)                     # (N, D), the vectors before the output layer
    classifier.running(frame)                   # a row per event, with the score after it
    classifier.explain(frame)                   # a row per token, with its contribution
    ```

    `predict` takes a table, a list of sequences, or one row. `predict_source` reads files part by part, and
    `predict_columns` takes canonical Arrow columns. `device`: "auto", "cpu" or "cuda" (see `open_session`). `threads`:
    number of CPU threads, None for one thread per core. `threshold`: lowest probability at which the positive label is
    predicted, or "argmax". With `threshold=None`, the decision of the bundle is used (see `override_threshold`).
    `embeddings`: True to add the extra output `embedding` (see `embed`) to predictions, also those of streams.
    `running`: True to predict tables after each event. `warnings`: lines, such as why `device="auto"` does not use an
    existing GPU. A pickled classifier is the path and the digest of its bundle, which is opened again with the same
    arguments. Raises InputError if the bundle is damaged or has an unsupported format.
    """

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name} ({field.kind}, column '{field.column}')" for field in self.schema.fields)
        classes = ", ".join(self.classes[:SHOWN_CLASSES]) + (", …" if len(self.classes) > SHOWN_CLASSES else "")
        decision = self.decision
        choice = "the most probable class" if decision.rule == "argmax" else f"rule {decision.rule}"
        if decision.rule != "argmax" and decision.threshold is not None:
            choice = f"{decision.positive} from a probability of {decision.threshold:.3g}"
        return f"Classifier('{self.folder}': {fields}; classes {classes}; predicts {choice})"

    @property
    def classes_(self) -> np.ndarray:
        """Labels (C,) of the classes, in the order of the columns of `predict_proba`."""
        return np.array(self.labels.to_pylist())

    @overload
    def predict(self, data: Mapping[str, Any], **limits: float | None) -> SequencePrediction: ...

    @overload
    def predict(self, data: list[Any] | tuple[Any, ...], **limits: float | None) -> list[SequencePrediction]: ...

    @overload
    def predict(self, data: Any, **limits: float | None) -> Any: ...

    def predict(self, data: Any, **limits: float | None) -> Any:
        """Predict the rows of `data`.

        The type of the result depends on the type of `data`. A rejected row gets an error and no label.

        - For a table (pandas, polars, Arrow), the result is a table of the same library. The result has the columns of
          the predict command, and its rows have the order of the input rows. The result for a pandas frame has the
          index of the frame. The columns of the input table are named like the fields, or like the columns of the
          training file. For a table of events, the result has one row per group. Ids keep the name of their column.
        - For the path of a file, a glob or a URL, the result is an Arrow table. Files larger than memory are for the
          predict command and `predict_source`.
        - For a list of sequences, the result is a list of `SequencePrediction`. A sequence is a text, a list of tokens
          or, for several fields, a dict field name → list.
        - For a single sequence, the result is one `SequencePrediction`. The sequence is a dict field name → list, or a
          row of a pandas frame.

        `limits`: max_refused, max_far and max_drift, limits of all rows together as of the predict command. Beyond one
        of them, LimitError is raised, by a reader at its end.

        Data without rows gives a result without rows, with the same columns. Raises InputError if `data` is a single
        string, a table that lacks a column, or several rows that are all rejected; `predict_rows` yields their errors.
        """
        rows, is_single = self._rows_of(data)
        within = InputLimits(**limits)
        within.check(self.strange, self.reference)
        if rows is None:
            return predict_table(self, data, within)
        predictions = list(self.predict_rows(rows, within))
        require_usable([prediction["error"] for prediction in predictions])
        return predictions[0] if is_single else predictions

    def predict_proba(self, data: Any) -> np.ndarray:
        """Return the probability (N, C) of each class in `classes_`, NaN for rejected rows. `data`: see `predict`."""
        probabilities = [self.predict_columns(columns).probabilities for columns in self._columns_of(data)]
        return np.concatenate([np.empty((0, len(self.classes))), *probabilities])

    def embed(self, data: Any) -> np.ndarray:
        """Return the embedding (N, D) float32 of each row, NaN for rejected rows. `data`: see `predict`.

        It is what the output layers of the network read (see `SequenceNetwork.embedding_layers`). In the manifest, the
        key `embedding` has the name and the size of each part, in their order. Raises InputError if there are none.
        """
        reader, parts = self.embedding_reader(), list[np.ndarray]()
        for columns in self._columns_of(data):
            found = self.predict_columns(columns, reader=reader)
            parts.append(np.where(found.lengths[:, None] > 0, found.extra[EMBEDDING], np.float32(np.nan)))
        return np.concatenate([reader.extra[EMBEDDING], *parts])

    def running(self, data: Any) -> Any:
        """Return the score after each event, in a table with a row for each event, as of `predict running=true`.

        `data`: see `predict`; for sequences in Python, the result is an Arrow table whose `id` is their number from 1.
        Raises InputError for a bundle without `step.onnx`, and if scores depend on later events (`scale: sequence`,
        `data.truncate=keep_last`).
        """
        opened = object.__new__(type(self))
        vars(opened).update(vars(self), running_reader=running_reader(self), extra=running_outputs(self))
        rows, _ = self._rows_of(data)
        if rows is None:
            return predict_table(opened, data, NO_LIMITS)
        parts = zip(range(1, len(rows) + 1, RUNNING_ROWS), self.row_columns(rows, RUNNING_ROWS), strict=True)
        tables = [opened.predict_batch(columns, first).table for first, (columns, _) in parts]
        return pa.Table.from_batches(tables, table_schema(opened, None))

    def _columns_of(self, data: Any) -> Iterator[pa.RecordBatch]:
        rows, _ = self._rows_of(data)
        if rows is None:
            return (window.columns for window in self.windows(self.table_source(data)))
        return (columns for columns, _ in self.row_columns(rows))

    def _rows_of(self, data: Any) -> tuple[list[Any] | None, bool]:
        """Return the sequences in `data`, or None for a table, and True for a single one (a dict or a series)."""
        if isinstance(data, Mapping):
            return [data], True
        if not isinstance(data, list):
            if is_table(data) or _is_file(data):
                return None, False
            known = {*self.encoders, *self.python_rows.field_of_column}
            if is_pandas(data) and (cells := {name: cell for name, cell in data.items() if name in known}):
                return [cells], True
        return _listed(data), False

    def stream(self) -> Stream:
        """Return a `Stream`, which updates the prediction of a sequence whenever new tokens of it arrive."""
        self.require_unchanged_fields()
        return Stream(self, self.open_step())

    def check(self) -> Soundness:
        """Check the bundle in the folder of this classifier on this machine, as `seqclf doctor` does."""
        return examine(CheckedBundle(self.folder, self.device, self.threads))

    def explain(self, data: Any, *, by_field: bool = True) -> Any:
        """Return the contribution of each token to the prediction of its row. The method is occlusion.

        The contribution of a token is the log-odds of the predicted label minus the log-odds with the token masked (see
        `occlude`). A positive contribution supports the prediction. With `by_field`, it is also that of each of several
        fields. For a table (see `predict`), the result is a table of the same library with one row per token, like the
        output of `predict explain=true`. For a list of sequences, it is a list of `Explanation`, and for a single
        sequence one. Raises InputError for data that `predict` rejects.
        """
        rows, is_single = self._rows_of(data)
        if rows is None:
            return explanation.explain_table(self, data, by_field=by_field)
        explanations: list[Explanation] = []
        for columns, value_errors in self.row_columns(rows, explanation.WINDOW_ROWS):
            explanations += explanation.explain_rows(self, columns, value_errors, by_field=by_field)
        return explanations[0] if is_single else explanations


def _is_file(data: Any) -> bool:
    """Return True for a path, and for a text that is one: of a known format, of a file that exists, or a URL."""
    endings = {ending for known in FORMATS for ending in known.endings}
    return isinstance(data, Path) or (
        isinstance(data, str) and ("://" in data or suffix_of(data) in endings or Path(data).is_dir())
    )


def _listed(data: Any) -> list[Any]:
    """Return the sequences in a list, an array or a data frame column. Raises InputError for a single string."""
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        problem = f"got {type(data).__name__}, which is not a table or a list of sequences"
        raise InputError("predict", problem, "for one sequence, write [sequence]")
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data.to_pylist()
    column: Any = data
    return column.to_list() if hasattr(column, "to_list") else list(column)


def predict_table(classifier: BundleModel, data: Any, limits: InputLimits) -> Any:
    """Predict the rows of a table or file, within limits. Return a table of the same library.

    The result has the columns of the predict command. Its ids, under the name of their column or `id`, are those of the
    bundle's id column, the groups of an event table, or row numbers, of the result of the bundle's query or of a file.
    For a record batch reader, the result is a reader, which predicts a batch when it is read.
    """
    source, schema = classifier.table_source(data), classifier.schema
    names = [] if source.table is None else source.table.schema.names
    all_columns = table_schema(classifier, None).names
    same_rows = source.table is not None and source.query is None and not schema.group_by
    same_rows = same_rows and classifier.running_reader is None
    # Without an id column, the result has row numbers as ids, but only if the rows may differ from the input rows.
    columns = all_columns[1:] if same_rows and schema.id not in names else all_columns
    own = schema.id or (schema.group_by[0] if len(schema.group_by) == 1 else "id")
    named = {} if own in columns else {"id": own}
    sample = RowSample(classifier.reference)
    results = classifier.predict_windows(source, sample if limits else None)
    results = limits.checked(results, classifier.strange, sample)

    def empty() -> pa.Schema:  # only a result without rows needs the type of the ids
        return table_schema(classifier, id_type(schema, source))

    return to_library(results, empty, data, columns, same_rows=same_rows, named=named)


def table_schema(classifier: BundleModel, ids: pa.DataType | None) -> pa.Schema:
    """Return the schema of the predictions of a classifier. `ids`: type of the ids, None for row numbers."""
    extra, strange = classifier.extra, classifier.strange.names
    return predictions_schema(classifier.classes, classifier.labels.type, ids, extra=extra, strange=strange)
