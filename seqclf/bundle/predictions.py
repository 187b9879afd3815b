"""Predictions as plain values, and as a table: one row per input row, in input order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import NamedTuple, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.field_spec import UNKNOWN_IDS, FieldSpec
from seqclf.data.schema.schema import Label


class SequencePrediction(TypedDict):
    """Prediction of one sequence. `probability` is that of the label, `probabilities` those of all labels.

    Labels have the type of the column that the bundle was trained on. A refused sequence has an `error`, and None in
    all other keys. `tokens_read`: only of models that may halt before the end of a sequence.
    """

    prediction: Label | None
    probability: float | None
    probabilities: dict[Label, float] | None
    error: str | None
    tokens_read: NotRequired[int]


def predictions_schema(
    classes: list[str], label_type: pa.DataType, id_type: pa.DataType | None, *, may_halt: bool = False
) -> pa.Schema:
    """Columns `id`, `prediction`, `probability`, `probability_<label>` for each label, and `error`.

    `may_halt`: with the column `tokens_read` before the last.
    """
    columns = [("id", id_type or pa.int64()), ("prediction", label_type), ("probability", pa.float64())]
    columns += [(f"probability_{label}", pa.float64()) for label in classes]
    columns += [("tokens_read", pa.int64())] if may_halt else []
    return pa.schema([*columns, ("error", pa.string())])


def row_ids(columns: pa.RecordBatch, first_row: int) -> pa.Array:
    """Return the ids (N,) of canonical columns, or the numbers of the rows from `first_row` where they have no id."""
    if "id" in columns.schema.names:
        return columns.column("id")
    return pa.array(np.arange(first_row, first_row + columns.num_rows))


def guard_formulas(table: pa.RecordBatch) -> pa.RecordBatch:
    """Prefix texts that a spreadsheet would run as formulas with an apostrophe (CSV injection)."""
    columns = [
        pc.replace_substring_regex(column, r"\A([=+\-@\t\r\n])", r"'\1") if pa.types.is_string(column.type) else column
        for column in table.columns
    ]
    return pa.record_batch(columns, schema=table.schema)


def predictions_table(predictions: Predictions, classes: list[str], labels: pa.Array, ids: pa.Array) -> pa.RecordBatch:
    """Rows of `predictions_schema`. A refused row has only its id and error.

    `labels`: (C,) in their type. `ids`: (N,) of any type (see `row_ids`).
    """
    refused = np.array([error is not None for error in predictions.errors], dtype=bool)
    # Any index will do for refused rows, which are masked below.
    best = np.where(refused, 0, predictions.predicted)
    top = predictions.probabilities[np.arange(len(best)), best]
    arrays = [ids, labels.take(pa.array(best, mask=refused)), pa.array(top, mask=refused)]
    arrays += [pa.array(column, mask=refused) for column in predictions.probabilities.T]
    may_halt = predictions.tokens_read is not None
    arrays += [pa.array(predictions.tokens_read, mask=refused)] if may_halt else []
    arrays.append(pa.array(predictions.errors, pa.string()))
    return pa.record_batch(arrays, schema=predictions_schema(classes, labels.type, ids.type, may_halt=may_halt))


FAR = 10.0


def count_strange(specs: Sequence[FieldSpec], fields: Mapping[str, np.ndarray]) -> tuple[int, int]:
    """Count the encoded tokens with an unknown value, and those with a number that is `FAR` from those of training."""
    length = len(next(iter(fields.values())))
    unknown, far = np.zeros((2, length), bool)
    for spec in specs:
        values = fields.get(spec["name"])
        if values is None:
            continue
        if spec["kind"] in UNKNOWN_IDS:
            unknown |= (values == UNKNOWN_IDS[spec["kind"]]).reshape(length, -1).any(axis=1)
        elif spec["kind"] == "number":
            far |= (np.abs(values[:, np.array(spec["scaled"], bool)]) > FAR).any(axis=1)
    return int(unknown.sum()), int(far.sum())


class Counts(NamedTuple):
    """Counts of consecutive rows.

    Attributes:
        rows: rows that were read.
        refused: rows with an error in place of a prediction.
        tokens: tokens of the other rows after truncation.
        tokens_read: tokens that the model read; 0 for a model that always reads whole sequences.
        encoded: tokens of all rows that could be encoded.
        unknown: tokens among `encoded` that hold a value which training did not have.
        far: tokens among `encoded` with a number further than `FAR` standard deviations from the mean of training.
    """

    rows: int = 0
    refused: int = 0
    tokens: int = 0
    tokens_read: int = 0
    encoded: int = 0
    unknown: int = 0
    far: int = 0

    def plus(self, other: Counts) -> Counts:
        """Return the counts of both.

        >>> Counts(3, 1).plus(Counts(2, tokens=9))
        Counts(rows=5, refused=1, tokens=9, tokens_read=0, encoded=0, unknown=0, far=0)
        """
        return Counts(*map(add, self, other))


class Result(NamedTuple):
    """Output of a window, or of a part of one: a table in the order of its rows, and their counts.

    The results of all windows, in the order of the windows, make the output of the source.
    """

    table: pa.RecordBatch
    counts: Counts


class Predictions(NamedTuple):
    """Predictions of consecutive rows.

    `logits`, `probabilities`: (N, C), NaN in refused rows. `predicted`: (N,) class numbers, -1 in refused rows.
    `lengths`: (N,) tokens before truncation, 0 in refused rows. `errors`: why a row was refused, None if it was not.
    `tokens_read`: (N,), 0 in refused rows; None for a model that always reads whole sequences. `tokens` of all rows
    that could be encoded: `unknown` ones hold a value that training did not have, `far` ones a number further than
    `FAR` standard deviations from the mean of training.
    """

    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray
    lengths: np.ndarray
    errors: list[str | None]
    tokens_read: np.ndarray | None = None
    tokens: int = 0
    unknown: int = 0
    far: int = 0

    def part(self, start: int, stop: int) -> Predictions:
        """Return the predictions of the rows from `start` up to `stop`."""
        rows = slice(start, stop)
        logits, probabilities, predicted, lengths, errors, read, *_ = self
        read = None if read is None else read[rows]
        return Predictions(logits[rows], probabilities[rows], predicted[rows], lengths[rows], errors[rows], read)
