"""Scores after each event of a sequence: of its first event, of its first two, and so on, by `step.onnx`."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.predictions import Predictions
from seqclf.bundle.sequence_reader import WholeSequences
from seqclf.data.encoding.encoders import encode, tokens_of
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.ragged import Ragged, list_values
from seqclf.errors import InputError

BundleModel = Any  # the class of bundle/model.py, which imports this file
RUNNING_ROWS = 1024  # rows of a window, each of which becomes many lines


def running_reader(classifier: BundleModel) -> WholeSequences:
    """Return a reader of scores after each event. Raises InputError if they would depend on later events."""
    truncation, encoders = classifier.schema.truncation, classifier.encoders.values()
    if any(each.looks_ahead for each in encoders) or (truncation.cuts and truncation.side == "keep_last"):
        problem = "what the model reads of an event depends on later ones"
        raise InputError("running", problem, "train without scale: sequence and data.max_length")
    classifier.open_step()  # raises InputError if there is none
    reader = copy.copy(classifier.reader)
    if reader.open_step is None:
        raise InputError("running", "step.onnx has not all outputs of the network", "name them in its more_outputs")
    reader.each = True
    return reader


def _clock(classifier: BundleModel) -> TimeEncoder | None:
    return next((each for each in classifier.encoders.values() if isinstance(each, TimeEncoder)), None)


def running_outputs(classifier: BundleModel) -> dict[str, np.ndarray]:
    """Return the columns of an event beside those of predictions: dict name → array without rows."""
    clock, positive = _clock(classifier), classifier.decision.positive
    times = {} if clock is None else {"time": clock.original_times(np.empty(0))}
    alerts = {} if positive is None else {"alert": np.empty(0, bool)}
    return {"position": np.empty(0, np.int64), **times, **alerts, **classifier.reader.extra}


def after_each_event(
    classifier: BundleModel, predictions: Predictions, columns: pa.RecordBatch
) -> tuple[Predictions, np.ndarray]:
    """Return a prediction after each event of N rows, one for a rejected row, and the row of each."""
    kept, truncation = predictions.kept, classifier.schema.truncation
    columns = truncation.cut_lists(columns.take(pa.array(np.flatnonzero(kept))), tokens_of(classifier.encoders))
    sequences = encode(classifier.encoders, columns, truncation).sequences
    logits, extra = classifier.read(sequences, classifier.running_reader)
    predicted, clock = classifier.decision.choose(logits), _clock(classifier)
    positions = np.arange(1, len(logits) + 1) - np.repeat(sequences.offsets[:-1], sequences.lengths)
    outputs = {**extra, "position": positions, "alert": is_alert(classifier, predicted)}
    if clock is not None:
        outputs["time"] = clock.original_times(list_values(columns.column(clock.field.name)))
    rows = np.repeat(np.arange(len(kept)), np.maximum(kept, 1))

    def lines(values: np.ndarray) -> np.ndarray:
        spread = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        spread[kept[rows] > 0] = values
        return spread

    found = predictions._replace(
        probabilities=lines(classifier.decision.probabilities(logits)),
        predicted=lines(predicted),
        errors=[predictions.errors[row] for row in rows],
        extra={name: lines(outputs[name]) for name in classifier.extra},
        strange={name: values[rows] for name, values in predictions.strange.items()},
    )
    return found, rows


def is_alert(classifier: BundleModel, predicted: np.ndarray) -> np.ndarray:
    positive = classifier.decision.positive
    return predicted == (-1 if positive is None else classifier.classes.index(positive))


class FirstAlerts(NamedTuple):
    """First alerts of the H found positive rows of a sample.

    `found`: (H, 3) events up to it, events after it, and seconds from it to the last event, NaN without times.
    `taken_back`: number of the `negatives` with an alert on the way and none at the end.
    """

    found: np.ndarray
    taken_back: int
    negatives: int


def first_alerts(classifier: BundleModel, sequences: Ragged, labels: np.ndarray) -> FirstAlerts | None:
    """Return where alerts come in N rows of class numbers `labels` (N,), None without scores after each event."""
    try:
        reader, clock = running_reader(classifier), _clock(classifier)
    except InputError:
        return None
    alerts = is_alert(classifier, classifier.decision.choose(classifier.read(sequences, reader).logits))
    starts, last, positive = sequences.offsets[:-1], sequences.offsets[1:] - 1, is_alert(classifier, labels)
    first = np.minimum.reduceat(np.where(alerts, np.arange(len(alerts)), len(alerts)), starts)
    seconds = np.full(len(alerts), np.nan) if clock is None else np.cumsum(clock.gaps_of(sequences.fields))
    found = np.flatnonzero(alerts[last] & positive)
    begin, end = first[found], last[found]
    times = np.stack([begin - starts[found] + 1, end - begin, seconds[end] - seconds[begin]], axis=1)
    return FirstAlerts(times, int((~positive & ~alerts[last] & (first < last)).sum()), int((~positive).sum()))
