"""Scores after each event of a sequence: of its first event, of its first two, and so on, by `step.onnx`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.predictions import Predictions
from seqclf.bundle.sequence_reader import WholeSequences
from seqclf.data.encoding.encoders import encode, tokens_of
from seqclf.data.encoding.kinds.time import TimeEncoder
from seqclf.data.ragged import Ragged, list_values
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.model import BundleModel

RUNNING_ROWS = 1024  # rows of a window, each of which becomes many lines


def running_reader(classifier: BundleModel) -> WholeSequences:
    """Return a reader of scores after each event. Raises InputError if they would depend on later events."""
    for name, encoder in tokens_of(classifier.encoders).items():
        if encoder.looks_ahead:
            raise InputError(
                "running", f"an event of the field {name} depends on later ones", "train without its scale"
            )
    truncation = classifier.schema.truncation
    if truncation.cuts and truncation.side == "keep_last":
        problem = "the bundle reads the last data.max_length events, which each event changes"
        raise InputError("running", problem, "train without data.max_length")
    classifier.open_step()  # raises InputError if there is none
    return classifier.reader.after_each_token()


def _clock(classifier: BundleModel) -> TimeEncoder | None:
    return next((each for each in classifier.encoders.values() if isinstance(each, TimeEncoder)), None)


def running_outputs(classifier: BundleModel) -> dict[str, np.ndarray]:
    """Return the columns of scores after each event beside those of predictions: dict name → array without rows."""
    clock, positive = _clock(classifier), classifier.decision.positive
    times = {} if clock is None else {"time": clock.original_times(np.empty(0))}
    alerts = {} if positive is None else {"alert": np.empty(0, bool)}
    return {"position": np.empty(0, np.int64), **times, **alerts, **classifier.reader.extra}


def after_each_event(
    classifier: BundleModel, predictions: Predictions, columns: pa.RecordBatch
) -> tuple[Predictions, np.ndarray]:
    """Return a prediction after each event of canonical columns, one for a rejected row, and the row of each."""
    kept, truncation = predictions.kept, classifier.schema.truncation
    columns = truncation.cut_lists(columns.take(pa.array(np.flatnonzero(kept))), tokens_of(classifier.encoders))
    sequences = encode(classifier.encoders, columns, truncation).sequences
    logits, extra = classifier.read(sequences, classifier.running_reader)
    predicted, clock = classifier.decision.choose(logits), _clock(classifier)
    lengths = sequences.lengths
    outputs = {**extra, "position": np.arange(1, len(logits) + 1) - np.repeat(sequences.offsets[:-1], lengths)}
    outputs["alert"] = is_alert(classifier, predicted)
    if clock is not None:
        outputs["time"] = clock.original_times(list_values(columns.column(clock.field.name)))
    rows = np.repeat(np.arange(len(kept)), np.maximum(kept, 1))
    is_event = kept[rows] > 0

    def lines(values: np.ndarray) -> np.ndarray:
        spread = np.zeros((len(rows), *values.shape[1:]), values.dtype)
        spread[is_event] = values
        return spread

    return Predictions(
        lines(logits),
        lines(classifier.decision.probabilities(logits)),
        lines(predicted),
        is_event,
        is_event,
        [predictions.errors[row] for row in rows],
        {name: lines(outputs[name]) for name in classifier.extra},
        {name: values[rows] for name, values in predictions.strange.items()},
    ), rows


def is_alert(classifier: BundleModel, predicted: np.ndarray) -> np.ndarray:
    """Return the mask of predicted class numbers that are the positive label."""
    positive = classifier.decision.positive
    return predicted == (-1 if positive is None else classifier.classes.index(positive))


class FirstAlerts(NamedTuple):
    """Where the H found positive rows of a sample first get an alert.

    `read`, `left`: (H,) events up to it and after it. `seconds`: (H,) from it to the last event, None without times.
    `taken_back`: the number of `negatives`, other rows, with an alert on the way and none at the end.
    """

    read: np.ndarray
    left: np.ndarray
    seconds: np.ndarray | None
    taken_back: int
    negatives: int


def first_alerts(classifier: BundleModel, sequences: Ragged, labels: np.ndarray) -> FirstAlerts | None:
    """Return where alerts come in N encoded rows of class numbers `labels` (N,), None where nothing can tell."""
    try:
        reader = running_reader(classifier)
    except InputError:
        return None
    alerts = is_alert(classifier, classifier.decision.choose(classifier.read(sequences, reader).logits))
    starts, last = sequences.offsets[:-1], sequences.offsets[1:] - 1
    first = np.minimum.reduceat(np.where(alerts, np.arange(len(alerts)), len(alerts)), starts)
    positive = is_alert(classifier, labels)
    found, clock = alerts[last] & positive, _clock(classifier)
    seconds = None
    if clock is not None:
        elapsed = np.cumsum(clock.gaps_of(sequences.fields))
        seconds = elapsed[last[found]] - elapsed[first[found]]
    taken_back = int((~positive & ~alerts[last] & (first < last)).sum())
    return FirstAlerts((first - starts + 1)[found], (last - first)[found], seconds, taken_back, int((~positive).sum()))
