"""Explanations of the shown tokens of a page: those of the classifier, within a budget."""

import numpy as np
import pytest

from seqclf.bundle.explanations import explanation
from seqclf.bundle.explanations.explanation import explain_shown
from seqclf.data.encoding.encoders import encode


@pytest.fixture
def encoded(exported, classifier):
    """A sequence of cards, its class and its encoded tokens."""
    loaded = classifier("card")
    sequence = max(exported("card").sequences, key=lambda entry: len(entry["shop"]))
    columns, _ = loaded.python_rows.to_columns([sequence])
    predicted = loaded.classes.index(loaded.predict(sequence)["prediction"])
    return sequence, predicted, encode(loaded.encoders, columns, loaded.schema.truncation).sequences.fields


def test_shown_tokens_have_the_contributions_of_an_explanation(classifier, encoded):
    sequence, predicted, fields = encoded
    expected = np.array(classifier("card").explain(sequence)["contributions"])
    for positions in ([0, 1, len(expected) - 1], list(range(len(expected)))):
        shown, _ = explain_shown(classifier("card"), fields, predicted, positions)
        np.testing.assert_allclose(shown, expected[positions], atol=2e-5)


def test_a_row_beyond_the_budget_is_not_explained(classifier, encoded, monkeypatch):
    _, predicted, fields = encoded
    monkeypatch.setattr(explanation, "MAX_TOKENS", 3 * len(fields["shop"]))
    assert explain_shown(classifier("card"), fields, predicted, [0, 1, 2]) == (None, {})
    assert len(explain_shown(classifier("card"), fields, predicted, [0, 1])[0]) == 2
