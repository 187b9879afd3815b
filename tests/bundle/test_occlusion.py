"""Contributions by occlusion: those of a plain loop that predicts each sequence with one of its tokens masked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.bundle.explanations import occlusion
from seqclf.bundle.explanations.occlusion import log_odds
from seqclf.data.encoding.encoders import encode
from seqclf.data.ragged import Ragged, take

KINDS = ["events", "text", "position", "visits", "card", "alerts"]
UNKNOWN = {"events": 99, "alerts": 99, "visits": []}


def odds(result, label):
    """Log-odds of a label in the result of `Classifier.predict`."""
    return np.log(result["probabilities"][label]) - np.log(1 - result["probabilities"][label])


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_equal_those_of_masking_one_token_after_the_other(exported, classifier, kind):
    loaded, spec = classifier(kind), {spec["name"]: spec for spec in classifier(kind).specs}
    sequences = exported(kind).sequences[:15]
    columns, _ = loaded.python_rows.to_columns(sequences)
    encoded = encode(loaded.encoders, columns, loaded.schema.truncation).sequences
    complete, explained = loaded.predict(sequences), loaded.explain(sequences)
    for row, (explanation, prediction) in enumerate(zip(explained, complete, strict=True)):
        assert explanation["prediction"] == prediction["prediction"] and explanation["error"] is None
        assert explanation["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-6)
        label, alone = loaded.classes.index(str(prediction["prediction"])), take(encoded, np.array([row]))
        assert len(explanation["tokens"]) == alone.offsets[-1]
        expected = []
        for position in range(alone.offsets[-1]):
            fields = {name: values.copy() for name, values in alone.fields.items()}
            for name, values in fields.items():
                scaled = np.array(spec[name]["scaled"]) if spec[name]["kind"] == "number" else ...
                values[position, ...][scaled] = 0
                values[position] = 0 if spec[name].get("masked") else values[position]
            logits = loaded.decision.scaled(loaded.logits(Ragged(alone.offsets, fields)))
            expected.append(log_odds(logits, np.array([label]))[0])
        whole = log_odds(loaded.decision.scaled(loaded.logits(alone)), np.array([label]))
        np.testing.assert_allclose(explanation["contributions"], whole - expected, atol=2e-5)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_masked_token_is_a_token_that_says_nothing(exported, classifier, kind):
    loaded = classifier(kind)
    sequence = max(exported(kind).sequences, key=len)
    masked = [[*sequence[:n], UNKNOWN[kind], *sequence[n + 1 :]] for n in range(len(sequence))]
    explanation, complete, *unknown = loaded.explain([sequence])[0], *loaded.predict([sequence, *masked])
    label = complete["prediction"]
    expected = [odds(complete, label) - odds(result, label) for result in unknown]
    assert explanation["contributions"] == pytest.approx(expected, abs=2e-5)


def test_fields_are_occluded_one_at_a_time(exported, classifier):
    loaded = classifier("card")
    mean = loaded.encoders["amount"].scales.mean[0, 0]
    sequence = max(exported("card").sequences, key=lambda entry: len(entry["shop"]))
    explanation, complete = loaded.explain(sequence), loaded.predict(sequence)
    label = complete["prediction"]
    for name, neutral in (("shop", "never seen"), ("amount", mean)):
        expected = []
        for position in range(len(sequence["shop"])):
            changed = {field: list(tokens) for field, tokens in sequence.items()}
            changed[name][position] = neutral
            expected.append(odds(complete, label) - odds(loaded.predict(changed), label))
        np.testing.assert_allclose(explanation["contributions_by_field"][name], expected, atol=2e-5)


def test_sequences_of_one_field_have_no_contributions_by_field(classifier):
    assert classifier("events").explain([[1, 2]])[0]["contributions_by_field"] == {}
    card = {"shop": ["food"], "amount": [1.0]}
    assert classifier("card").explain([card], by_field=False)[0]["contributions_by_field"] == {}


@pytest.mark.parametrize("kind", ["events", "card", "position"])
def test_contributions_ignore_order_batch_mates_and_parts(exported, classifier, kind, monkeypatch):
    sequences, loaded = exported(kind).sequences, classifier(kind)
    in_one_call = [explanation["contributions"] for explanation in loaded.explain(sequences)]

    @settings(max_examples=6)
    @given(st.lists(st.integers(0, len(sequences) - 1), min_size=1, max_size=10), st.sampled_from([5, 60, 10**6]))
    def check(rows, most):
        monkeypatch.setattr(occlusion, "MAX_OCCLUDED_TOKENS", most)
        for row, explanation in zip(rows, loaded.explain([sequences[row] for row in rows]), strict=True):
            np.testing.assert_allclose(explanation["contributions"], in_one_call[row], atol=2e-5)

    check()


def test_log_odds_are_the_margin_of_two_classes_and_do_not_saturate():
    logits = np.array([[0.0, 90.0], [0.0, 100.0]])
    assert log_odds(logits, np.array([1, 1])).tolist() == [90.0, 100.0]
    three = np.array([[0.3, -1.0, 2.0]])
    probability = np.exp(three[0, 2]) / np.exp(three[0]).sum()
    assert log_odds(three, np.array([2])) == pytest.approx(np.log(probability / (1 - probability)))
