"""Prediction with a bundle on ONNX Runtime, without PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, overload

import numpy as np
import pyarrow as pa

from seqclf.bundle import explanation
from seqclf.bundle.explanation import Explanation
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import SequencePrediction
from seqclf.bundle.sequence_reader import UntilHalted
from seqclf.bundle.streaming import Stream
from seqclf.bundle.table_predictions import predict_table
from seqclf.data.reading.tables import is_pandas, is_table
from seqclf.errors import InputError

SHOWN_CLASSES = 10


class Classifier(BundleModel):
    """Classifier of a bundle, on ONNX Runtime and without PyTorch.

    ```python
    classifier = Classifier("runs/fraud/bundle", threshold=0.2)
    classifier.predict(frame)                   # a data frame in, a data frame out
    classifier.predict([[3, 1, 4]])[0]["prediction"]
    classifier.predict_proba(frame)             # (N, C), in the order of classes_
    classifier.explain(frame)                   # a row per token, with its contribution
    ```

    `predict` takes a table, a list of sequences, or one row. `predict_source` streams files, and `predict_columns`
    takes canonical Arrow columns. `device`: see `open_session`. `threads`: CPU threads, None for one per core.
    `threshold`: see `evaluation.decision.override_threshold`. `budget`: share of the tokens that a model which may halt
    reads on average, by the curve of its validation; None for the share that the bundle recommends, 1 to read
    everything. Its guarantees hold for that share. `warnings` says where they are lost, and where `device="auto"` does
    not use a card that is there. Raises InputError if the bundle is damaged or of another version.
    """

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name} ({field.kind}, column '{field.column}')" for field in self.schema.fields)
        classes = ", ".join(self.classes[:SHOWN_CLASSES]) + (", …" if len(self.classes) > SHOWN_CLASSES else "")
        decision, choice = self.decision, "the most probable class"
        if decision.rule != "argmax":
            choice = f"rule {decision.rule}"
            if decision.threshold is not None:
                choice = f"{decision.positive} from a probability of {decision.threshold:.3g}"
        return f"Classifier('{self.folder}': {fields}; classes {classes}; predicts {choice})"

    @property
    def classes_(self) -> np.ndarray:
        """(C,) labels, in the order of the columns of `predict_proba`."""
        return np.array(self.labels.to_pylist())

    @overload
    def predict(self, data: Mapping[str, Any]) -> SequencePrediction: ...

    @overload
    def predict(self, data: list[Any] | tuple[Any, ...]) -> list[SequencePrediction]: ...

    @overload
    def predict(self, data: Any) -> Any: ...

    def predict(self, data: Any) -> Any:
        """Return predictions of the same kind as the data. A row that is refused has an error and no label.

        - A table (pandas, polars, Arrow) gives a table of the same library with the columns that the predict command
          writes, in the order of the rows. A pandas frame keeps its index. The columns are those of the training file,
          or are named as the fields. Tables of events give a row per group.
        - A list of sequences gives a list of `SequencePrediction`. A sequence is a text, a list of tokens, or, with
          several fields, a mapping of lists by field.
        - One mapping of fields, or one row of a pandas frame, gives one `SequencePrediction`.

        Raises InputError for a single text, and for a table that lacks a column.
        """
        row = self._single_row(data)
        if row is None and not isinstance(data, list) and is_table(data):
            return predict_table(self, data)
        predictions: list[SequencePrediction] = []
        for window in self.row_windows(_rows(data) if row is None else [row]):
            predictions += self.sequence_predictions(self.predict_columns(window.columns), window.value_errors)
        return predictions if row is None else predictions[0]

    def predict_proba(self, data: Any) -> np.ndarray:
        """(N, C) probabilities in the order of `classes_`, NaN in refused rows. `data`: see `predict`."""
        row = self._single_row(data)
        if row is None and not isinstance(data, list) and is_table(data):
            windows = self.windows(self.table_source(data))
        else:
            windows = self.row_windows(_rows(data) if row is None else [row])
        parts = [self.predict_columns(window.columns).probabilities for window in windows]
        return np.concatenate(parts) if parts else np.empty((0, len(self.classes)))

    def _single_row(self, data: Any) -> Mapping[str, Any] | None:
        """Return one row as a mapping: a mapping, or a row of a pandas frame (`frame.iloc[0]`). None for other data."""
        if isinstance(data, Mapping):
            return data
        if isinstance(data, list) or not is_pandas(data) or is_table(data):
            return None
        known = {*self.encoders, *self.field_of_column}
        cells = {name: cell for name, cell in data.items() if name in known}
        return cells or None

    def stream(self) -> Stream:
        """Return a stream, which predicts sequences while their tokens arrive. See `Stream`."""
        self.require_unchanged_fields()
        return Stream(self, self.reader.model if isinstance(self.reader, UntilHalted) else self.open_step(None))

    def explain(self, data: Any, *, by_field: bool = True) -> Any:
        """Return the contribution of each token to the prediction of its row, by leaving the token out.

        The contribution is the log-odds of the predicted label minus those without the token (see `occlude`). Positive
        ones support the prediction. `by_field`: also the contribution of each field of a token, where there are
        several.

        - A table gives a table of the same library with a row per token, as `predict explain=true` writes it.
        - A list of sequences gives a list of `Explanation`, one mapping of fields a single one.

        A node of a tree is left out with all nodes below it. Raises InputError for what `predict` refuses.
        """
        row = self._single_row(data)
        if row is None and not isinstance(data, list) and is_table(data):
            return explanation.explain_table(self, data, by_field=by_field)
        explanations: list[Explanation] = []
        for window in self.row_windows(_rows(data) if row is None else [row], explanation.WINDOW_ROWS):
            explanations += explanation.explain_rows(self, window, by_field=by_field)
        return explanations if row is None else explanations[0]


def _rows(data: Any) -> list[Any]:
    """Return the rows of a list, an array or a column of a data frame. Raises InputError for a single value."""
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise InputError(
            "predict",
            f"got {type(data).__name__}, which is not a table or a list of sequences",
            "for one sequence, write [sequence]",
        )
    if isinstance(data, (pa.Array, pa.ChunkedArray)):
        return data.to_pylist()
    column: Any = data
    return column.to_list() if hasattr(column, "to_list") else list(column)
