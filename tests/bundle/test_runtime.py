"""A bundle's predictions: those of the trained model, in the order of the rows, whatever the window."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.bundle import runtime
from seqclf.bundle.runtime import open_session
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError

KINDS = ["events", "text", "place", "card"]


def probabilities(found):
    return np.array([list(entry["probabilities"].values()) for entry in found])


def by_hand(kind, sequence, state):
    """A sequence as tensors (1, T), by the plainest reading of the stored encoders."""
    fields = sequence if kind == "card" else {kind: sequence}
    tensors = {}
    for name, steps in fields.items():
        if "values" in state[name]:
            known = state[name]["values"]
            tensors[name] = torch.tensor([[known.index(step) + 1 if step in known else 0 for step in steps]])
        else:
            scaled = (np.array(steps).reshape(len(steps), -1) - state[name]["mean"]) / state[name]["deviation"]
            tensors[name] = torch.from_numpy(scaled.astype(np.float32))[None]
    return tensors, np.array([len(steps)])


UNSEEN = {"events": [3, 99], "place": [[9.0, -9.0]], "card": {"shop": ["food", "zoo"], "amount": [1, 2]}}


@pytest.mark.parametrize("kind", UNSEEN)
def test_predictions_are_those_of_the_trained_model(packed, classifier, kind):
    made = packed(kind)
    sequences = [*made.sequences, UNSEEN[kind]]
    for sequence, entry in zip(sequences, classifier(kind).predict(sequences), strict=True):
        fields, lengths = by_hand(kind, sequence, made.task.hparams["dataset"]["encoders"])
        with torch.no_grad():
            logits = made.task.model(fields, torch.from_numpy(lengths), lengths)
        expected = logits[0].double().softmax(0).numpy()
        assert list(entry["probabilities"]) == ["k0", "k1", "k2"]
        np.testing.assert_allclose(list(entry["probabilities"].values()), expected, atol=1e-6)
        assert entry["probability"] == entry["probabilities"][entry["prediction"]]
        assert entry["prediction"] == f"k{expected.argmax()}" and entry["error"] is None


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_ignore_order_and_batch_mates(packed, classifier, kind):
    sequences = packed(kind).sequences
    together = probabilities(classifier(kind).predict(sequences))
    np.testing.assert_allclose(together.sum(axis=1), 1.0)

    @settings(max_examples=8, deadline=None)
    @given(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=12))
    def check(rows):
        found = probabilities(classifier(kind).predict([sequences[row] for row in rows]))
        np.testing.assert_allclose(found, together[rows], atol=1e-6)

    check()


@pytest.mark.parametrize("window", [1, 7, 10_000])
@pytest.mark.parametrize("max_tokens", [16, 32768])
def test_predictions_of_a_file_ignore_the_window(packed, classifier, tmp_path, monkeypatch, window, max_tokens):
    sequences = packed("events").sequences
    pq.write_table(pa.table({"events": sequences}), tmp_path / "new.parquet")
    monkeypatch.setattr(runtime, "WINDOW_ROWS", window)
    monkeypatch.setattr(runtime, "MAX_TOKENS", max_tokens)
    found = list(classifier("events").predict_source(Source(str(tmp_path / "new.parquet"), "input")))
    assert [int(batch.rows[0]) for batch, _ in found] == list(
        np.cumsum([1, *(batch.columns.num_rows for batch, _ in found[:-1])])
    )
    expected = probabilities(classifier("events").predict(sequences))
    np.testing.assert_allclose(np.concatenate([part.probabilities for _, part in found]), expected, atol=1e-6)


REFUSED = {
    "events": [[], None, ["x"], [1, None], "1 2", 5, list(range(21)), [[1, 2]], {"other": [1]}, [1.5], [10**30]],
    "text": ["", "   ", None, 5, ["green", "house"], b"\xff"],
    "place": [[], [1.0, 2.0], [[1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0]], [[1.0, None]], [[1.0, "b"]], [None], "[[1, 2]]"],
    "card": [
        None,
        {},
        ["food", "fun"],
        [1, 2],  # would do for each field, but must not be read as both
        {"shop": ["food"]},
        {"shop": ["food"], "amount": [1.0, 2.0]},
        {"shop": ["food"], "amount": [float("nan")]},
        {"shop": ["food"], "amount": [1e300]},
        {"shop": ["food"], "amount": ["much"]},
        {"shop": ["food"], "amount": [None]},
        {"shop": [], "amount": []},
    ],
}
CASES = [(kind, bad) for kind, entries in REFUSED.items() for bad in entries]


@pytest.mark.parametrize(("kind", "bad"), CASES, ids=[f"{kind}-{str(bad)[:40]}" for kind, bad in CASES])
def test_a_refused_row_keeps_its_place_and_has_an_error(packed, classifier, kind, bad):
    good = packed(kind).sequences[:3]
    found = classifier(kind).predict([good[0], bad, good[1], bad, good[2]])
    assert len(found) == 5
    for row in (1, 3):
        assert found[row]["error"] and "\n" not in found[row]["error"]
        assert [found[row][key] for key in ("prediction", "probability", "probabilities")] == [None] * 3
    expected = probabilities(classifier(kind).predict(good))
    np.testing.assert_allclose(probabilities([found[row] for row in (0, 2, 4)]), expected, atol=1e-6)


def test_only_refused_rows_and_no_rows(classifier):
    assert [entry["prediction"] for entry in classifier("events").predict([[], None])] == [None, None]
    assert classifier("events").predict([]) == []


@pytest.mark.parametrize("kind", ["events", "place", "card"])
@pytest.mark.parametrize("made_of", [np.array, tuple, list])
def test_arrays_and_tuples_are_sequences_too(packed, classifier, kind, made_of):
    def remade(sequence):
        if isinstance(sequence, dict):
            return {name: made_of(steps) for name, steps in sequence.items()}
        return made_of([made_of(step) for step in sequence] if kind == "place" else sequence)

    sequences = packed(kind).sequences
    found = classifier(kind).predict([remade(sequence) for sequence in sequences])
    np.testing.assert_array_equal(probabilities(found), probabilities(classifier(kind).predict(sequences)))


def test_a_long_sequence_is_cut_as_in_training(classifier):
    """The text bundle keeps the last 8 steps."""
    short, long = "rain under green house walks rain ! green", "walks house rain under green house walks rain ! green"
    first, second = classifier("text").predict([short, long])
    assert first == second


@pytest.mark.parametrize(
    ("kind", "text"),
    [("events", "[3, 1, 2]"), ("events", "3 1 2"), ("events", " 3  1 2 ")],
)
def test_a_typed_sequence_is_its_list(classifier, kind, text):
    made = classifier(kind)
    assert made.predict([made.parse(text)]) == made.predict([[3, 1, 2]])


def test_a_typed_sequence_of_several_fields_is_json(packed, classifier):
    made, sequence = classifier("card"), packed("card").sequences[0]
    assert made.predict([made.parse(json.dumps(sequence))]) == made.predict([sequence])
    with pytest.raises(InputError, match=r"is not JSON .* write \{FIELD: \[tokens\]"):
        made.parse("{shop: food}")


def test_a_file_without_the_fields_is_refused_by_name(classifier, tmp_path):
    pq.write_table(pa.table({"event": [[1]], "when": [1]}), tmp_path / "new.parquet")
    source = Source(str(tmp_path / "new.parquet"), "input")
    with pytest.raises(InputError, match=r"new\.parquet: no column 'events' \(.*\); did you mean 'event'"):
        next(classifier("events").predict_source(source))


def test_an_unknown_device_is_refused_by_name(packed):
    with pytest.raises(InputError, match="device=tpu: must be auto, cpu or cuda"):
        open_session(packed("events").folder / "model.onnx", "tpu")
