"""Predictions on labelled rows: the same as without labels, and rows without a usable label are refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from seqclf.bundle.scoring import predict_labelled
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Source(str(path), "input")


def test_labels_become_class_numbers_and_predictions_are_those_without_labels(exported, classifier, tmp_path):
    sequences = exported("events").sequences[:5]
    labels = ["k2", "k0", "k1", "k0", "k2"]
    rows = [{"events": tokens, "label": label} for tokens, label in zip(sequences, labels, strict=True)]
    result = predict_labelled(classifier("events"), write_rows(tmp_path / "t.jsonl", rows), "label", None)
    assert result.outputs.labels.tolist() == [2, 0, 1, 0, 2] and result.refused == []
    others = [*rows, {**rows[0], "label": "new"}, {"events": [], "label": "new"}, {**rows[0], "label": None}]
    found = predict_labelled(classifier("events"), write_rows(tmp_path / "n.jsonl", others), "label", None)
    assert (len(found.refused), found.unknown) == (3, 1)
    expected = [list(entry["probabilities"].values()) for entry in classifier("events").predict(sequences)]
    np.testing.assert_allclose(softmax(result.outputs.logits), expected, atol=1e-6)
    assert (
        result.outputs.lengths.tolist() == [len(tokens) for tokens in sequences] and not result.outputs.truncated.any()
    )


def test_groups_are_read_along(exported, classifier, tmp_path):
    sequences = exported("events").sequences[:5]
    rows = [
        {"events": tokens, "label": "k0", "who": who}
        for tokens, who in zip(sequences, ["b", "a", None, "b", ""], strict=True)
    ]
    source = write_rows(tmp_path / "t.jsonl", rows)
    outputs = predict_labelled(classifier("events"), source, "label", None, group="who").outputs
    assert outputs.group_names.to_pylist() == ["b", "a", None, "b", None]
    assert len(set(outputs.groups.tolist())) == 4 and outputs.groups[0] == outputs.groups[3]
    assert predict_labelled(classifier("events"), source, "label", None).outputs.groups is None
    with pytest.raises(InputError) as caught:
        predict_labelled(classifier("events"), source, "label", None, group="whom")
    assert "whom" in str(caught.value)


def test_weights_are_read_along(exported, classifier, tmp_path):
    sequences, weights = exported("events").sequences[:3], [2.5, 0.0, 7.0]
    rows = [{"events": tokens, "label": "k0", "w": w} for tokens, w in zip(sequences, weights, strict=True)]
    source = write_rows(tmp_path / "t.jsonl", [*rows, {"events": sequences[0], "label": "never seen", "w": 1.0}])
    assert predict_labelled(classifier("events"), source, "label", None, weight="w").outputs.weights.tolist() == weights
    bad = write_rows(tmp_path / "b.jsonl", [{**rows[0], "w": None}])
    with pytest.raises(InputError, match=r"row 1: the weight of the row is no number \(data\.weight\)"):
        predict_labelled(classifier("events"), bad, "label", None, weight="w")


def test_ids_are_spelled_as_in_training(exported, classifier, tmp_path, monkeypatch):
    model, sequences = classifier("events"), exported("events").sequences[:2]
    monkeypatch.setattr(model, "schema", replace(model.schema, id="k"))
    rows = [{"events": tokens, "label": "k0", "k": key} for tokens, key in zip(sequences, [1e15, 2.5], strict=True)]
    found = predict_labelled(model, write_rows(tmp_path / "t.jsonl", rows), "label", None).outputs.ids
    assert found.to_pylist() == ["1000000000000000", "2.5"]


def test_times_are_read_along_without_those_of_refused_rows(exported, classifier, tmp_path):
    sequences = [*exported("events").sequences[:2], [], exported("events").sequences[3]]
    times = ["2024-01-02 00:00:00", 86400, "2024-01-04", None]
    rows = [{"events": tokens, "label": "k0", "at": at} for tokens, at in zip(sequences, times, strict=True)]
    source = write_rows(tmp_path / "t.jsonl", rows)
    found = predict_labelled(classifier("events"), source, "label", None, time="at").times
    assert found[:2].tolist() == [1704153600.0, 86400.0] and np.isnan(found[2]) and len(found) == 3
    assert predict_labelled(classifier("events"), source, "label", None).times is None
    with pytest.raises(InputError, match="when"):
        predict_labelled(classifier("events"), source, "label", None, time="when")


def test_a_refused_row_is_reported_with_file_row_and_reason(exported, classifier, tmp_path):
    tokens = exported("events").sequences[0]
    rows = [
        {"events": tokens, "label": "k1"},
        {"events": [], "label": "k1"},
        {"events": tokens, "label": "new"},
        {"events": tokens, "label": None},
        {"events": tokens, "label": "k0"},
    ]
    source = write_rows(tmp_path / "t.jsonl", rows)
    result = predict_labelled(classifier("events"), source, "label", None)
    assert result.outputs.labels.tolist() == [1, 0] and len(result.outputs.logits) == 2
    empty_sequence, unknown_label, empty_label = result.refused
    assert empty_sequence.startswith(f"{source.path}: row 2: events")
    assert unknown_label == f"{source.path}: row 3: label is 'new', which the bundle does not know"
    assert empty_label == f"{source.path}: row 4: label is empty"


def test_a_source_without_usable_rows_is_refused(exported, classifier, tmp_path):
    rows = [{"events": exported("events").sequences[0], "label": "new"}]
    with pytest.raises(InputError, match="row 1: label is 'new', which the bundle does not know"):
        predict_labelled(classifier("events"), write_rows(tmp_path / "t.jsonl", rows), "label", None)


def test_a_label_table_needs_a_bundle_with_ids(exported, classifier, tmp_path):
    rows = [{"events": exported("events").sequences[0], "id": 7}]
    table = LabelTable(write_rows(tmp_path / "labels.jsonl", [{"id": 7, "label": "k1"}]), ("id",), "label")
    with pytest.raises(InputError, match=r"t.jsonl: the bundle was trained without data.id, by which the labels of"):
        predict_labelled(classifier("events"), write_rows(tmp_path / "t.jsonl", rows), "label", table)


def test_wrong_rows_keep_their_text_to_the_letter(classifier, tmp_path):
    texts = [f"  Green\tHOUSE \n{number} !" for number in range(6)]
    mistakes = []
    for label in ("k0", "k1", "k2"):
        rows = [{"text": text, "label": label} for text in texts]
        source = write_rows(tmp_path / "t.jsonl", rows)
        result = predict_labelled(classifier("text"), source, "label", None, explain=True)
        mistakes += result.mistakes.items()
    assert len(mistakes) >= len(texts), "a text is right under one label at most"
    assert all(described.texts == {"text": texts[position]} for position, described in mistakes)


def test_mistakes_are_explained_on_demand(exported, classifier, tmp_path):
    loaded = classifier("events")
    sequences = exported("events").sequences[:6]
    wrong = {"k0": "k1", "k1": "k2", "k2": "k0"}
    explained = loaded.explain(sequences)
    rows = [
        {"events": tokens, "label": wrong[entry["prediction"]]}
        for tokens, entry in zip(sequences, explained, strict=True)
    ]
    source = write_rows(tmp_path / "t.jsonl", rows)
    assert predict_labelled(loaded, source, "label", None).mistakes == {}
    mistakes = predict_labelled(loaded, source, "label", None, explain=True).mistakes
    assert sorted(mistakes) == list(range(6))
    for row, mistake in mistakes.items():
        assert mistake.contributions == pytest.approx(explained[row]["contributions"], abs=2e-5)
