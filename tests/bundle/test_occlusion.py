"""Contributions by occlusion: those of a plain loop that predicts each sequence without one of its tokens."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.untrained_task import data_options

from seqclf.bundle import occlusion
from seqclf.bundle.occlusion import log_odds
from seqclf.data.encoding.encoders import encode, removal_traces
from seqclf.data.prepare import prepare
from seqclf.data.schema.truncation import NO_TRUNCATION

KINDS = ["events", "text", "position", "visits", "card", "alerts"]
UNKNOWN = {"events": 99, "alerts": 99, "visits": []}


def odds(result, label):
    """Log-odds of a label in the result of `Classifier.predict`."""
    return np.log(result["probabilities"][label]) - np.log(1 - result["probabilities"][label])


def without(kind, sequence, position):
    """The sequence without one token."""
    if kind == "text":
        words = sequence.split()
        return " ".join(words[:position] + words[position + 1 :])
    if kind == "card":
        return {name: without("events", tokens, position) for name, tokens in sequence.items()}
    return sequence[:position] + sequence[position + 1 :]


def length_of(kind, sequence):
    return len(sequence.split() if kind == "text" else sequence["shop"] if kind == "card" else sequence)


@pytest.mark.parametrize("kind", KINDS)
def test_contributions_equal_those_of_leaving_out_one_token_after_the_other(exported, classifier, kind):
    loaded = classifier(kind)
    limit = 8 if kind == "text" else 20  # longer texts are truncated, and a word less would bring back another
    sequences = [entry for entry in exported(kind).sequences if 1 < length_of(kind, entry) <= limit][:15]
    copies = [(row, n) for row, entry in enumerate(sequences) for n in range(length_of(kind, entry))]
    shortened = loaded.predict([without(kind, sequences[row], position) for row, position in copies])
    complete, explained = loaded.predict(sequences), loaded.explain(sequences)
    expected = [odds(complete[row], complete[row]["prediction"]) for row, _ in copies]
    expected = np.array(expected) - [
        odds(result, complete[row]["prediction"]) for result, (row, _) in zip(shortened, copies, strict=True)
    ]
    np.testing.assert_allclose(np.concatenate([row["contributions"] for row in explained]), expected, atol=2e-5)
    for sequence, explanation, prediction in zip(sequences, explained, complete, strict=True):
        assert len(explanation["tokens"]) == length_of(kind, sequence)
        assert explanation["prediction"] == prediction["prediction"] and explanation["error"] is None
        assert explanation["probabilities"] == pytest.approx(prediction["probabilities"], abs=1e-6)


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("missing", ["mean", "last", "zero"])
def test_contributions_are_those_of_rows_without_a_token_that_have_missing_numbers(tmp_path, missing, mask):
    generator = np.random.default_rng(2)
    rows = [[None if generator.random() < 0.5 else x for x in generator.lognormal(size=6).tolist()] for _ in range(20)]
    pq.write_table(pa.table({"x": rows, "label": ["k0", "k1"] * 10}), tmp_path / "train.parquet")
    field = {"kind": "number", "missing": missing, "mask": mask, "since": "tokens"}
    dataset = prepare(data_options(tmp_path / "cache", train=str(tmp_path / "train.parquet"), fields={"x": field}))
    weights = np.random.default_rng(0).standard_normal((3, 2))

    def scores(sequences):
        """(N,) numbers that depend on the order and on all channels of the tokens."""
        tokens = np.tanh(sequences.fields["x"] @ weights[: sequences.fields["x"].shape[1], 1])
        return np.array([np.cumsum(part).mean() for part in np.split(tokens, sequences.offsets[1:-1])])

    def encoded(rows):
        columns = pa.record_batch({"x": pa.array(rows, pa.list_(pa.float64()))})
        traces = removal_traces(dataset.encoders, columns, NO_TRUNCATION)
        return encode(dataset.encoders, columns, NO_TRUNCATION).sequences, traces

    sequences, traces = encoded(rows)
    shortened, _ = encoded([row[:n] + row[n + 1 :] for row in rows for n in range(6)])
    expected = np.repeat(scores(sequences), 6) - scores(shortened)
    actual = occlusion.occlude(
        dataset.encoders, sequences, lambda copies, _: scores(copies), by_field=False, traces=traces
    )
    np.testing.assert_allclose(actual.tokens, expected, atol=2e-5)


@pytest.mark.parametrize("kind", UNKNOWN)
def test_the_only_token_of_a_sequence_is_replaced_by_one_that_says_nothing(exported, classifier, kind):
    loaded = classifier(kind)
    sequence = exported(kind).sequences[0][:1]
    explanation, complete, unknown = loaded.explain([sequence])[0], *loaded.predict([sequence, [UNKNOWN[kind]]])
    label = complete["prediction"]
    assert explanation["contributions"] == pytest.approx([odds(complete, label) - odds(unknown, label)], abs=2e-5)


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
