"""Predictions of a bundle: equal to the trained model, in input order, independent of batches and windows."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.bundle import model, sequence_reader
from seqclf.bundle.runtime import Classifier
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

KINDS = ["events", "text", "position", "visits", "card"]


def probabilities(results):
    return np.array([list(result["probabilities"].values()) for result in results])


def encode_plainly(kind, sequence, encoder_states):
    """Tensors (1, T), (1, T, D) or (1, T, K) by field, and the lengths (1,): an oracle for the encoders."""
    fields = sequence if kind == "card" else {kind: sequence}
    tensors = {}
    for name, tokens in fields.items():
        state = encoder_states[name]
        if kind == "visits":
            ids_of = {code: id for id, code in enumerate(state["values"], start=2)}
            ids = [[ids_of.get(code, 1) for code in codes] for codes in tokens]
            width = max(1, *map(len, ids))
            tensors[name] = torch.tensor([[token + [0] * (width - len(token)) for token in ids]])
        elif "values" in state:
            vocabulary = state["values"]
            ids = [vocabulary.index(token) + 1 if token in vocabulary else 0 for token in tokens]
            tensors[name] = torch.tensor([ids])
        else:
            scaled = (np.array(tokens).reshape(len(tokens), -1) - state["mean"]) / state["deviation"]
            tensors[name] = torch.from_numpy(scaled.astype(np.float32))[None]
    return tensors, np.array([len(tokens)])


# Values that no training row has: an unknown id, a far outlier, an unknown shop.
UNSEEN = {
    "events": [3, 99],
    "visits": [["I10", "X"], []],
    "position": [[9.0, -9.0]],
    "card": {"shop": ["food", "zoo"], "amount": [1, 2]},
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_predictions_equal_those_of_the_trained_model(exported, classifier, kind):
    bundle = exported(kind)
    sequences = [*bundle.sequences, UNSEEN[kind]]
    for sequence, result in zip(sequences, classifier(kind).predict(sequences), strict=True):
        fields, lengths = encode_plainly(kind, sequence, bundle.task.hparams["dataset"]["encoders"])
        with torch.no_grad():
            logits = bundle.task.model(fields, torch.from_numpy(lengths), lengths)
        expected = logits[0].double().softmax(0).numpy()
        assert list(result["probabilities"]) == ["k0", "k1", "k2"]
        np.testing.assert_allclose(list(result["probabilities"].values()), expected, atol=1e-6)
        assert result["probability"] == result["probabilities"][result["prediction"]]
        assert result["prediction"] == f"k{expected.argmax()}" and result["error"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_ignore_order_and_batch_mates(exported, classifier, kind):
    sequences = exported(kind).sequences
    in_one_call = probabilities(classifier(kind).predict(sequences))
    np.testing.assert_allclose(in_one_call.sum(axis=1), 1.0)

    @settings(max_examples=8)
    @given(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=12))
    def check(rows):
        results = classifier(kind).predict([sequences[row] for row in rows])
        np.testing.assert_allclose(probabilities(results), in_one_call[rows], atol=1e-6)

    check()


@pytest.mark.parametrize("window", [1, 7, 10_000])
@pytest.mark.parametrize("max_tokens", [16, 32768])
def test_predictions_of_a_file_ignore_window_and_batch_size(
    exported, classifier, tmp_path, monkeypatch, window, max_tokens
):
    sequences = exported("events").sequences
    pq.write_table(pa.table({"events": sequences}), tmp_path / "new.parquet")
    monkeypatch.setattr(model, "WINDOW_ROWS", window)
    monkeypatch.setattr(sequence_reader, "MAX_TOKENS", max_tokens)
    windows = list(classifier("events").predict_source(Source(str(tmp_path / "new.parquet"), "input")))
    first_rows = np.cumsum([1, *(batch.columns.num_rows for batch, _ in windows[:-1])])
    assert [int(batch.row_numbers[0]) for batch, _ in windows] == list(first_rows)
    expected = probabilities(classifier("events").predict(sequences))
    np.testing.assert_allclose(
        np.concatenate([predictions.probabilities for _, predictions in windows]), expected, atol=1e-6
    )


REFUSED = {
    "events": [[], None, ["x"], [1, None], "1 2", 5, list(range(21)), [[1, 2]], {"other": [1]}, [1.5], [10**30]],
    "text": ["", "   ", None, 5, ["green", "house"], b"\xff"],
    "position": [
        [],
        [1.0, 2.0],
        [[1.0, 2.0, 3.0]],
        [[1.0, 2.0], [1.0]],
        [[1.0, None]],
        [[1.0, "b"]],
        [None],
        "[[1, 2]]",
    ],
    "card": [
        None,
        {},
        ["food", "fun"],
        [1, 2],  # valid for each field alone, but must not be read as both
        {"shop": ["food"]},
        {"shop": ["food"], "amount": [1.0, 2.0]},
        {"shop": ["food"], "amount": [float("nan")]},
        {"shop": ["food"], "amount": [1e300]},
        {"shop": ["food"], "amount": ["much"]},
        {"shop": ["food"], "amount": [None]},
        {"shop": [], "amount": []},
    ],
}
REFUSED_CASES = [(kind, sequence) for kind, sequences in REFUSED.items() for sequence in sequences]


@pytest.mark.parametrize(
    ("kind", "refused"), REFUSED_CASES, ids=[f"{kind}-{str(sequence)[:40]}" for kind, sequence in REFUSED_CASES]
)
def test_a_refused_row_has_an_error_and_leaves_the_other_rows_unchanged(exported, classifier, kind, refused):
    valid = exported(kind).sequences[:3]
    results = classifier(kind).predict([valid[0], refused, valid[1], refused, valid[2]])
    assert len(results) == 5
    for row in (1, 3):
        assert results[row]["error"] and "\n" not in results[row]["error"]
        assert [results[row][key] for key in ("prediction", "probability", "probabilities")] == [None] * 3
    expected = probabilities(classifier(kind).predict(valid))
    np.testing.assert_allclose(probabilities([results[row] for row in (0, 2, 4)]), expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["events", "position", "visits", "card"])
@pytest.mark.parametrize("container", [np.array, tuple])
def test_arrays_and_tuples_are_predicted_like_lists(exported, classifier, kind, container):
    def converted(sequence):
        if isinstance(sequence, dict):
            return {name: container(tokens) for name, tokens in sequence.items()}
        if kind == "visits":  # sets of different sizes make no array
            return [container(token) for token in sequence]
        return container([container(token) for token in sequence] if kind == "position" else sequence)

    sequences = exported(kind).sequences
    results = classifier(kind).predict([converted(sequence) for sequence in sequences])
    np.testing.assert_array_equal(probabilities(results), probabilities(classifier(kind).predict(sequences)))


def test_a_long_sequence_is_truncated_as_in_training(classifier):
    """The text bundle keeps the last 8 tokens."""
    short, long = "rain under green house walks rain ! green", "walks house rain under green house walks rain ! green"
    first, second = classifier("text").predict([short, long])
    assert first == second


@pytest.mark.parametrize(("kind", "text"), [("events", "[3, 1, 2]"), ("events", " 3  1 2 ")])
def test_a_sequence_on_the_command_line_is_json_or_separated_by_spaces(classifier, kind, text):
    loaded = classifier(kind)
    assert loaded.predict([loaded.parse(text)]) == loaded.predict([[3, 1, 2]])


def test_a_sequence_of_several_fields_on_the_command_line_is_a_json_object(exported, classifier):
    loaded, sequence = classifier("card"), exported("card").sequences[0]
    assert loaded.predict([loaded.parse(json.dumps(sequence))]) == loaded.predict([sequence])
    with pytest.raises(InputError, match=r"is not JSON .* write \{\"FIELD\": \[tokens\]"):
        loaded.parse("{shop: food}")


def test_a_file_without_a_field_of_the_bundle_is_refused(classifier, tmp_path):
    pq.write_table(pa.table({"event": [[1]], "when": [1]}), tmp_path / "new.parquet")
    source = Source(str(tmp_path / "new.parquet"), "input")
    with pytest.raises(InputError, match=r"new\.parquet: no column 'events' \(.*\); did you mean 'event'"):
        next(classifier("events").predict_source(source))


@pytest.mark.parametrize("kind", ["visits", "text"])
def test_long_inputs_are_encoded_in_parts(exported, classifier, kind, monkeypatch):
    sequences = exported(kind).sequences
    together = probabilities(classifier(kind).predict(sequences))
    monkeypatch.setattr(model, "MAX_ENCODED_TOKENS", 7)
    columns, _ = classifier(kind).python_rows.to_columns(sequences)
    parts = classifier(kind)._parts(columns, np.arange(len(sequences)))
    assert np.concatenate(parts).tolist() == list(range(len(sequences)))
    assert len(parts) > 5 if kind == "visits" else len(parts) == 1
    np.testing.assert_allclose(probabilities(classifier(kind).predict(sequences)), together, atol=1e-6)


def test_a_prediction_leaves_no_files_of_its_own(exported, tmp_path):
    """ONNX Runtime would send figures about its use, and store them in the home and the temporary folder."""
    bundle = exported("events")
    arguments = [str(bundle.folder), json.dumps(bundle.sequences[:2])]
    script = "import json, sys, time; from seqclf import Classifier; sequences = json.loads(sys.argv[2])"
    script += "; Classifier(sys.argv[1]).predict(sequences); time.sleep(1)"
    variables = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    environment = {**os.environ, **variables, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", script, *arguments], env=environment, check=True, timeout=60)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda classifier: pickle.loads(pickle.dumps(classifier))])
def test_a_pickled_classifier_opens_its_bundle_again(copy_bundle, exported, twin, monkeypatch, tmp_path):
    copy_bundle("alerts")
    monkeypatch.chdir(tmp_path)
    before = Classifier("alerts", device="cpu", threads=1, threshold=0.9)
    monkeypatch.chdir(tmp_path / "alerts")
    after = twin(before)
    assert type(after) is Classifier and (after.device, after.threads) == ("cpu", 1)
    assert after.decision == before.decision
    sequences = exported("alerts").sequences
    assert after.predict(sequences) == before.predict(sequences)


@pytest.mark.parametrize("other", [None, "changed", "events"])
def test_a_pickled_classifier_takes_no_other_bundle(copy_bundle, exported, other):
    folder = copy_bundle("alerts")
    pickled = pickle.dumps(Classifier(folder, device="cpu", threads=1))
    if other == "changed":
        (folder / "model.onnx").write_bytes(b"")
    else:
        shutil.rmtree(folder)
    if other == "events":
        shutil.copytree(exported(other).folder, folder)
    with pytest.raises(InputError) as caught:
        pickle.loads(pickled)
    assert caught.value.where == f"bundle={folder}" and caught.value.remedy
