"""Logits that are not finite, or of another shape, are never predictions."""

import copy

import numpy as np
import pytest
import torch

from seqclf.bundle.runtime import Classifier
from seqclf.bundle.sequence_reader import ReaderLimits, read_sequences
from seqclf.bundle.step_model import Read
from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.runs.bundle_export import write_bundle

LONG = 6  # tokens from which `Overflowing` has no finite logits


class Overflowing:
    each = False

    def __init__(self, reader, value):
        self.reader, self.value = reader, value
        self.session, self.extra = reader.session, reader.extra

    def __call__(self, fields, lengths):
        read = self.reader(fields, lengths)
        return read._replace(logits=np.where(lengths[:, None] < LONG, read.logits, self.value))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_row_without_finite_logits_is_refused_and_the_others_are_not(exported, value):
    bundle = exported("events")
    classifier = Classifier(bundle.folder, device="cpu", threads=1)
    expected = classifier.predict(bundle.sequences)
    classifier.reader = Overflowing(classifier.reader, value)
    predicted = classifier.predict(bundle.sequences)
    for sequence, before, row in zip(bundle.sequences, expected, predicted, strict=True):
        assert row == before if len(sequence) < LONG else row["prediction"] is None and "finite" in row["error"]
    proba = classifier.predict_proba(bundle.sequences)
    assert np.isnan(proba).all(axis=1).tolist() == [len(sequence) >= LONG for sequence in bundle.sequences]
    explained = classifier.explain(bundle.sequences)
    assert [row["tokens"] is None for row in explained] == [len(sequence) >= LONG for sequence in bundle.sequences]


def test_a_stream_refuses_logits_that_are_not_finite(classifier):
    (row,) = classifier("events").predictions_of(np.array([[0.0, np.nan, 0.0]], np.float32))
    assert row["prediction"] is None and "finite" in row["error"]


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (4, 2), (3,)])
def test_logits_of_another_shape_are_one_line_and_not_spread_over_the_rows(shape):
    class Reader:
        file, session, extra, each = "model.onnx", None, {}, False

        def __call__(self, fields, lengths):
            return Read(np.zeros(shape, np.float32))

    with pytest.raises(InputError) as error:
        read_sequences(Reader(), Ragged(np.arange(5), {"value": np.arange(4)}), 3, ReaderLimits(100, workers=1))
    assert error.value.where == "model.onnx" and str(shape) in error.value.problem


@pytest.mark.parametrize("broken", ["bias", "shape"])
def test_a_network_with_impossible_logits_is_not_exported(exported, tmp_path, broken):
    task = copy.deepcopy(exported("events").task)
    if broken == "bias":
        torch.nn.init.constant_(task.model.output.bias, torch.nan)
    else:
        task.model.output = torch.nn.Sequential(task.model.output, torch.nn.Linear(3, 2))
    with pytest.raises(InputError) as error:
        write_bundle(task, tmp_path / "bundle", {})
    assert error.value.where == "the network" and list(tmp_path.iterdir()) == []
