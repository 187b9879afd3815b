"""Explanations of the shown tokens of a page: those of the classifier, within a budget."""

import numpy as np
import pytest

from seqclf.bundle import explanation
from seqclf.bundle.explanation import explain_shown
from seqclf.data.encoding.encoders import encode
from seqclf.data.encoding.token_table import describe_row


@pytest.fixture
def encoded(exported, classifier):
    loaded = classifier("card")
    sequence = max(exported("card").sequences, key=lambda entry: len(entry["shop"]))
    columns, _ = loaded.python_rows.to_columns([sequence])
    predicted = loaded.classes.index(loaded.predict(sequence)["prediction"])
    return sequence, predicted, encode(loaded.encoders, columns, loaded.schema.truncation).sequences.fields


def shown(classifier, fields, positions):
    row = describe_row(classifier.encoders, "one", fields, {})
    return row._replace(table=row.table._replace(positions=positions))


def test_shown_tokens_have_the_contributions_of_an_explanation(classifier, encoded):
    sequence, predicted, fields = encoded
    loaded = classifier("card")
    expected = np.array(loaded.explain(sequence)["contributions"])
    for positions in ([0, 1, len(expected) - 1], list(range(len(expected)))):
        explained = explain_shown(loaded, shown(loaded, fields, positions), fields, predicted)
        np.testing.assert_allclose(explained.contributions, expected[positions], atol=2e-5)


def test_a_row_beyond_the_budget_is_not_explained(classifier, encoded, monkeypatch):
    _, predicted, fields = encoded
    loaded = classifier("card")
    monkeypatch.setattr(explanation, "MAX_TOKENS", 3 * len(fields["shop"]))
    assert explain_shown(loaded, shown(loaded, fields, [0, 1, 2]), fields, predicted).contributions is None
    assert len(explain_shown(loaded, shown(loaded, fields, [0, 1]), fields, predicted).contributions) == 2
