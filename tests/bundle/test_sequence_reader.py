"""Batches of encoded sequences that several threads read at the same time."""

import threading

import numpy as np
import pytest
from bundle.conftest import sequences_of

from seqclf.bundle.runtime import Classifier
from seqclf.bundle.sequence_reader import ReaderLimits, read_sequences
from seqclf.bundle.step_model import Read
from seqclf.data.ragged import Ragged
from seqclf.errors import InputError

LENGTHS = np.array([4, 3, 4, 2, 4, 4])
SEQUENCES = Ragged(np.concatenate([[0], LENGTHS.cumsum()]), {"value": np.arange(LENGTHS.sum())})


class Sums:
    """A model whose only logit is the sum of the tokens. `before`: called with the tokens of each batch."""

    file = "model.onnx"
    session, each = None, False

    def __init__(self, before=lambda values: None):
        self.before, self.extra = before, {"tokens": np.empty(0, np.int64)}

    def __call__(self, fields, lengths):
        self.before(fields["value"])
        inside = np.arange(fields["value"].shape[1]) < lengths[:, None]
        return Read((fields["value"] * inside).sum(axis=1, keepdims=True), {"tokens": lengths})


def test_batches_are_read_at_the_same_time_and_keep_their_rows():
    # Each batch waits for another one: read one after the other, none would ever end.
    together = threading.Barrier(2, timeout=10)
    logits, extra = read_sequences(Sums(lambda _: together.wait()), SEQUENCES, 1, ReaderLimits(4, workers=2))
    values = np.split(SEQUENCES.fields["value"], SEQUENCES.offsets[1:-1])
    assert logits[:, 0].tolist() == [part.sum() for part in values]
    assert extra["tokens"].tolist() == LENGTHS.tolist()


def test_one_thread_reads_in_the_thread_of_the_caller():
    threads = set()
    read_sequences(Sums(lambda _: threads.add(threading.get_ident())), SEQUENCES, 1, ReaderLimits(4, workers=1))
    assert threads == {threading.get_ident()}


def test_an_error_of_a_batch_is_one_line_and_ends_the_reading():
    begun = []

    def fail(values):
        begun.append(values)
        raise ValueError("wrong shape")

    rows = 200
    many = Ragged(np.arange(rows + 1), {"value": np.arange(rows)})
    with pytest.raises(InputError, match=r"^model\.onnx: cannot be run \(wrong shape\); export the bundle anew$"):
        read_sequences(Sums(fail), many, 1, ReaderLimits(1, workers=2))
    assert len(begun) < rows


def test_predictions_do_not_depend_on_the_number_of_threads(exported, monkeypatch):
    bundle = exported("events")
    monkeypatch.setattr("seqclf.bundle.sequence_reader.MAX_TOKENS", 40)
    one, four = (Classifier(bundle.folder, device="cpu", threads=threads) for threads in (1, 4))
    sequences = sequences_of("events") * 20
    assert np.array_equal(one.predict_proba(sequences), four.predict_proba(sequences))
