"""Scores after each event of a sequence: of the first event, of the first two, and so on, by `step.onnx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.predictions import Predictions, predictions_schema, predictions_table
from seqclf.bundle.sequence_reader import ReaderLimits, read_running
from seqclf.bundle.step_model import Read, StepModel
from seqclf.data.encoding.encoders import encode, tokens_of
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.ragged import Ragged, list_values
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.model import BundleModel

RUNNING_ROWS = 1024  # rows of a source that are read at once, because each becomes many lines


def open_running(classifier: BundleModel) -> StepModel:
    """Return the step of a bundle, or raise InputError if its first events get no scores as if they were all."""
    for name, encoder in tokens_of(classifier.encoders).items():
        if encoder.looks_ahead:
            problem = f"an event of the {encoder.field.kind} field {name} depends on later ones"
            raise InputError("running", problem, "train with scale=standard")
    if classifier.schema.truncation == (classifier.schema.max_length, "keep_last") and classifier.schema.max_length:
        problem = "the bundle keeps the last data.max_length events, which are others after each event"
        raise InputError("running", problem, "train without data.max_length")
    return classifier.open_step()


def time_encoder(classifier: BundleModel) -> TimeEncoder | None:
    """Return the encoder of the times of events, that of the first column of `data.order_by` before others."""
    found = [encoder for encoder in tokens_of(classifier.encoders).values() if isinstance(encoder, TimeEncoder)]
    return min(found, key=lambda encoder: encoder.field.columns[0] not in classifier.schema.order_by[:1], default=None)


def running_schema(classifier: BundleModel, ids: pa.DataType | None) -> pa.Schema:
    """Return the schema of scores after each event: that of predictions, with `position`, `time` and `alert`."""
    id, *fields, error = predictions_schema(classifier.classes, classifier.labels.type, ids, extra=classifier.extra)
    clock = time_encoder(classifier)
    times = [] if clock is None else [pa.field("time", clock.original_type)]
    return pa.schema([id, pa.field("position", pa.int64()), *times, *fields, pa.field("alert", pa.bool_()), error])


def running_table(
    classifier: BundleModel, step: StepModel, predictions: Predictions, columns: pa.RecordBatch, ids: pa.Array
) -> pa.RecordBatch:
    """Return a line for each event of canonical columns, and one for each rejected row (see `running_schema`)."""
    usable, truncation = np.flatnonzero(predictions.kept), classifier.schema.truncation
    sequences = encode(classifier.encoders, columns.take(pa.array(usable)), truncation).sequences
    read = running_scores(classifier, step, sequences)
    row_of_line = np.repeat(np.arange(len(ids)), np.maximum(predictions.kept, 1))
    is_event = predictions.kept[row_of_line] > 0

    def spread(values: np.ndarray) -> np.ndarray:
        lines = np.zeros((len(is_event), *values.shape[1:]), values.dtype)
        lines[is_event] = values
        return lines

    logits, kept, refused = spread(read.logits), is_event.astype(np.int64), ~is_event
    predicted, errors = classifier.decision.choose(logits), [predictions.errors[row] for row in row_of_line]
    extra = {name: spread(read.extra[name]) for name in classifier.extra}
    probabilities = classifier.decision.probabilities(logits)
    lines = Predictions(logits, probabilities, predicted, kept, kept, errors, extra)
    table = predictions_table(lines, classifier.classes, classifier.labels, ids.take(pa.array(row_of_line)))
    schema, arrays = running_schema(classifier, ids.type), dict(zip(table.schema.names, table.columns, strict=True))
    positions = np.arange(1, sequences.offsets[-1] + 1) - np.repeat(sequences.offsets[:-1], sequences.lengths)
    arrays["position"] = pa.array(spread(positions), mask=refused)
    if (clock := time_encoder(classifier)) is not None:
        cut = truncation.cut_lists(columns.take(pa.array(usable)), [clock.field.name]).column(clock.field.name)
        arrays["time"] = clock.original_times(pa.array(spread(list_values(cut)), mask=refused))
    alerts = predicted == positive_class(classifier)
    arrays["alert"] = pa.array(alerts, mask=refused | (positive_class(classifier) is None))
    return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def running_scores(classifier: BundleModel, step: StepModel, sequences: Ragged) -> Read:
    """Return the logits (S, C), and the other outputs of the classifier, after each of S events."""
    limits = ReaderLimits.of(step.session, classifier.threads, by_chunks=True)
    return read_running(step, sequences, classifier.extra, len(classifier.classes), limits)


def positive_class(classifier: BundleModel) -> int | None:
    positive = classifier.decision.positive
    return None if positive is None else classifier.classes.index(positive)


class FirstAlerts(NamedTuple):
    """When the found positive rows of a sample of rows first get an alert. A row is one sequence.

    `read`: (H,) events up to the first alert of each. `left`: (H,) events after it. `seconds`: (H,) time from it to the
    last event, None without times. `taken_back`: negative rows with an alert on the way and none at their end.
    `negatives`: all negative rows of the sample.
    """

    read: np.ndarray
    left: np.ndarray
    seconds: np.ndarray | None
    taken_back: int
    negatives: int


def first_alerts(classifier: BundleModel, sequences: Ragged, labels: np.ndarray) -> FirstAlerts | None:
    """Return when alerts come. None without a positive label or without scores after each event.

    `sequences`: N encoded rows. `labels`: (N,) class numbers.
    """
    try:
        step = open_running(classifier)
    except InputError:
        return None
    if (positive := positive_class(classifier)) is None:
        return None
    alerts = classifier.decision.choose(running_scores(classifier, step, sequences).logits) == positive
    starts, ends, events = sequences.offsets[:-1], sequences.offsets[1:], np.arange(len(alerts))
    first = np.minimum.reduceat(np.where(alerts, events, len(alerts)), starts)
    at_end, is_positive = alerts[ends - 1], labels == positive
    found = at_end & is_positive
    seconds, clock = None, time_encoder(classifier)
    if clock is not None:
        elapsed = np.cumsum(clock.gaps_of(sequences.fields))
        seconds = elapsed[ends - 1][found] - elapsed[first[found]]
    taken_back = int((~is_positive & ~at_end & (first < ends)).sum())
    return FirstAlerts(
        (first - starts + 1)[found], (ends - 1 - first)[found], seconds, taken_back, int((~is_positive).sum())
    )
