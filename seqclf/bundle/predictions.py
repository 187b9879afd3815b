"""Predictions as Python values or as a table. The table has one row per input row, in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import add
from types import MappingProxyType
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
import pyarrow as pa

from seqclf.data.ragged import output_column
from seqclf.data.reading.tables import like
from seqclf.data.schema.schema import Label
from seqclf.errors import InputError


class SequencePrediction(TypedDict):
    """Prediction of one sequence: the label, in its type in training, its probability, and those of all labels.

    If the sequence was rejected, `error` is the reason and the other keys are None. Only where the model can tell:
    `unknown`: fraction of the tokens of category and text fields that training did not have. `far`: largest deviation
    of a scaled number from the mean of the training data, in standard deviations. Each extra output of the network adds
    a key of its name, with a number or a list of numbers (see `SequenceNetwork.extra_outputs`).
    """

    prediction: Label | None
    probability: float | None
    probabilities: dict[Label, float] | None
    error: str | None
    unknown: NotRequired[float | None]
    far: NotRequired[float | None]


def no_prediction(error: str | None) -> SequencePrediction:
    return {"prediction": None, "probability": None, "probabilities": None, "error": error}


def predictions_schema(
    classes: list[str],
    label_type: pa.DataType,
    id_type: pa.DataType | None,
    *,
    extra: Mapping[str, np.ndarray] = MappingProxyType({}),
    strange: Sequence[str] = (),
) -> pa.Schema:
    """Return the schema of a prediction table: `id`, `prediction`, `probability`, `probability_<label>`…, and `error`.

    Before `error` come the outputs `extra` (dict name → array) and the columns `strange` (see `StrangeValues`).
    """
    columns = [("id", id_type or pa.int64()), ("prediction", label_type), ("probability", pa.float64())]
    columns += [(f"probability_{label}", pa.float64()) for label in classes]
    columns += [(name, output_column(values[:0]).type) for name, values in extra.items()]
    columns += [(name, pa.float32()) for name in strange]
    return pa.schema([*columns, ("error", pa.string())])


def row_ids(columns: pa.RecordBatch, first_row: int) -> pa.Array:
    """Return the column `id` (N,), or row numbers from `first_row` if there is no such column."""
    if "id" in columns.schema.names:
        return columns.column("id")
    return pa.array(np.arange(first_row, first_row + columns.num_rows))


def predictions_table(predictions: Predictions, classes: list[str], labels: pa.Array, ids: pa.Array) -> pa.RecordBatch:
    """Return a prediction table (see `predictions_schema`). A rejected row has only `id` and `error`.

    `labels`: (C,) label of each class, and `ids`: (N,) id of each row (see `row_ids`), of any Arrow type.
    """
    refused = np.array([error is not None for error in predictions.errors], dtype=bool)
    # Any class index will do for rejected rows, because their values are masked below.
    best = np.where(refused, 0, predictions.predicted)
    top = predictions.probabilities[np.arange(len(best)), best]
    arrays = [ids, labels.take(pa.array(best, mask=refused)), pa.array(top, mask=refused)]
    arrays += [pa.array(column, mask=refused) for column in predictions.probabilities.T]
    arrays += [output_column(values, refused) for values in predictions.extra.values()]
    arrays += [pa.array(values, pa.float32(), mask=refused) for values in predictions.strange.values()]
    arrays.append(pa.array(predictions.errors, pa.string()))
    strange = list(predictions.strange)
    schema = predictions_schema(classes, labels.type, ids.type, extra=predictions.extra, strange=strange)
    return pa.record_batch(arrays, schema=schema)


class Counts(NamedTuple):
    """Numbers of rows and tokens in a block of rows.

    `refused`: rows with an error and no prediction. `tokens`: of the predicted rows, after truncation. `encoded`: with
    those of rows that are rejected later. `unknown`, `far`: encoded tokens with such a value (see `StrangeValues`).
    """

    rows: int = 0
    refused: int = 0
    tokens: int = 0
    encoded: int = 0
    unknown: int = 0
    far: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the sums of these counts and `other`."""
        return Counts(*map(add, self, other))


class Result(NamedTuple):
    """Output table and counts of a window, or of a contiguous block of its rows, in the order of the input rows."""

    table: pa.RecordBatch
    counts: Counts

    @property
    def errors(self) -> list[str | None]:
        """Error of each row, None for a predicted row."""
        errors: list[str | None] = self.table.column("error").to_pylist()
        return errors


class Predictions(NamedTuple):
    """Predictions of N consecutive rows.

    `logits`, `probabilities`: (N, C), NaN in rejected rows. `predicted`: (N,) index of each row's predicted class, -1
    for a rejected row. `lengths`, `kept`: (N,) tokens before and after truncation, 0 for a rejected row. `errors`:
    reason for the rejection, None for a predicted row. `extra`: dict name of another output → (N,) or (N, D), 0 for a
    rejected row. `strange`: dict column name → (N,) float32 measures (see `StrangeValues`). For others see `Counts`.
    """

    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray
    lengths: np.ndarray
    kept: np.ndarray
    errors: list[str | None]
    extra: Mapping[str, np.ndarray] = MappingProxyType({})
    strange: Mapping[str, np.ndarray] = MappingProxyType({})
    encoded: int = 0
    unknown: int = 0
    far: int = 0

    @property
    def counts(self) -> Counts:
        """Numbers of rows and tokens."""
        rows, accepted = len(self.errors), self.errors.count(None)
        return Counts(rows, rows - accepted, int(self.kept.sum()), self.encoded, self.unknown, self.far)

    def part(self, start: int, stop: int) -> Predictions:
        """Return the predictions of the rows from `start` to `stop - 1`, without the counts of encoded tokens."""
        rows = slice(start, stop)
        logits, probabilities, predicted, lengths, kept, errors, *_ = self
        extra, strange = ({name: values[rows] for name, values in each.items()} for each in (self.extra, self.strange))
        return Predictions(
            logits[rows], probabilities[rows], predicted[rows], lengths[rows], kept[rows], errors[rows], extra, strange
        )


def to_library(
    results: Iterable[Result],
    empty: Callable[[], pa.Schema],
    data: Any,
    columns: list[str],
    *,
    same_rows: bool,
    named: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Convert results to a table of the same library as `data`, or to a reader if `data` is one.

    `empty`: returns the schema of the table if there are no results. `columns`: names of the columns to return.
    `same_rows`: True if row i of the results belongs to row i of `data`. `named`: dict column → its name in the table.
    """
    names = [named.get(name, name) for name in columns]
    tables = (result.table.select(columns).rename_columns(names) for result in results)
    first = next(tables, None)
    if first is None:
        first = pa.RecordBatch.from_pylist([], empty()).select(columns).rename_columns(names)
    if isinstance(data, pa.RecordBatchReader):
        return pa.RecordBatchReader.from_batches(first.schema, chain([first], tables))
    table = pa.Table.from_batches([first, *tables])
    require_usable(table.column("error").to_pylist() if "error" in names else [])
    return like(table, data, same_rows=same_rows)


def require_usable(errors: Sequence[str | None]) -> None:
    """Raise InputError if several rows are all rejected. `errors`: the error of each row, None for a usable row."""
    if len(errors) > 1 and all(errors):
        raise InputError("data", f"all {len(errors)} rows are rejected; row 0: {errors[0]}")
