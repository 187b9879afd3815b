"""Contributions by occlusion: those of a plain loop that predicts each sequence with one of its tokens masked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.bundle import occlusion
from seqclf.bundle.occlusion import log_odds

UNKNOWN = {"events": 99, "alerts": 99, "visits": [], "position": None}


def odds(result, label):
    return np.log(result["probabilities"][label]) - np.log(1 - result["probabilities"][label])


@pytest.mark.parametrize("kind", UNKNOWN)
def test_a_masked_token_is_a_token_that_says_nothing(exported, classifier, kind):
    loaded = classifier(kind)
    sequence = max(exported(kind).sequences, key=len)
    nothing = loaded.encoders[kind].scales.mean[0].tolist() if kind == "position" else UNKNOWN[kind]
    masked = [[*sequence[:n], nothing, *sequence[n + 1 :]] for n in range(len(sequence))]
    explanation, complete, *unknown = loaded.explain([sequence])[0], *loaded.predict([sequence, *masked])
    label = complete["prediction"]
    expected = [odds(complete, label) - odds(result, label) for result in unknown]
    assert explanation["contributions"] == pytest.approx(expected, abs=2e-5)
    assert explanation["probabilities"] == pytest.approx(complete["probabilities"], abs=1e-6)
    assert len(explanation["tokens"]) == len(sequence) and explanation["error"] is None


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
