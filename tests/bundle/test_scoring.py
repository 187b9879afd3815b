"""Labelled rows are predicted as unlabelled ones are, and what cannot be scored is told row by row."""

import json

import numpy as np
import pytest

from seqclf.bundle.scoring import predict_labelled
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Source(str(path), "input")


def test_labels_are_codes_of_the_bundle_beside_what_it_predicts(packed, classifier, tmp_path):
    sequences = packed("events").sequences[:5]
    rows = [
        {"events": entry, "label": label}
        for entry, label in zip(sequences, ["k2", "k0", "k1", "k0", "k2"], strict=True)
    ]
    found = predict_labelled(classifier("events"), lines(tmp_path / "t.jsonl", rows), "label", None)
    assert found.outputs.labels.tolist() == [2, 0, 1, 0, 2] and found.refused == []
    expected = [list(entry["probabilities"].values()) for entry in classifier("events").predict(sequences)]
    np.testing.assert_allclose(softmax(found.outputs.logits), expected, atol=1e-6)
    assert found.outputs.lengths.tolist() == [len(entry) for entry in sequences] and not found.outputs.truncated.any()


def test_rows_that_cannot_be_scored_are_named_with_their_row(packed, classifier, tmp_path):
    good = packed("events").sequences[0]
    rows = [
        {"events": good, "label": "k1"},
        {"events": [], "label": "k1"},
        {"events": good, "label": "new"},
        {"events": good, "label": None},
        {"events": good, "label": "k0"},
    ]
    source = lines(tmp_path / "t.jsonl", rows)
    found = predict_labelled(classifier("events"), source, "label", None)
    assert found.outputs.labels.tolist() == [1, 0] and len(found.outputs.logits) == 2
    empty, new, missing = found.refused
    assert empty.startswith(f"{source.path}: row 2: events")
    assert new == f"{source.path}: row 3: label is 'new', which the bundle does not know"
    assert missing == f"{source.path}: row 4: label is empty"


def test_nothing_to_score_is_an_error(packed, classifier, tmp_path):
    rows = [{"events": packed("events").sequences[0], "label": "new"}]
    with pytest.raises(InputError, match="row 1: label is 'new', which the bundle does not know"):
        predict_labelled(classifier("events"), lines(tmp_path / "t.jsonl", rows), "label", None)


def test_a_table_of_labels_needs_ids(packed, classifier, tmp_path):
    rows = [{"events": packed("events").sequences[0], "id": 7}]
    table = LabelTable(lines(tmp_path / "labels.jsonl", [{"id": 7, "label": "k1"}]), ("id",), "label", None, None)
    with pytest.raises(InputError, match=r"t.jsonl: the bundle was trained without data.id, by which the labels of"):
        predict_labelled(classifier("events"), lines(tmp_path / "t.jsonl", rows), "label", table)
