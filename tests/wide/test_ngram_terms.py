"""What the n-grams of a path add: exact sums, texts of the n-grams, and the classes that they speak for."""

import numpy as np
import pytest
import torch

from seqclf.data.ragged import Ragged
from seqclf.evaluation import terms
from seqclf.wide.feature_path import padded
from seqclf.wide.ngram_terms import contributions, terms_of_ngrams
from seqclf.wide.ngrams import Ngrams

LETTERS = {"name": "letter", "kind": "category", "size": 6}
SHOPS = {"name": "shop", "kind": "category", "size": 4}
AMOUNT = {"name": "amount", "kind": "number", "width": 2}
SET = {"name": "tags", "kind": "bag", "size": 5}
TEXTS = {name: lambda ids, name=name: [f"{name[0]}{value}" for value in ids] for name in ("letter", "shop", "tags")}
FIELDS = {"letters": [LETTERS], "pairs": [LETTERS, SHOPS], "numbers": [AMOUNT], "mixed": [AMOUNT, SHOPS, SET]}


@pytest.fixture
def split(split_of):
    """Rows whose class is their third letter, with shops, amounts and tags at random."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 9, 240)
    offsets = np.append(0, np.cumsum(lengths))
    tokens = int(offsets[-1])
    fields = {
        "letter": rng.integers(1, 6, tokens).astype(np.int32),
        "shop": rng.integers(0, 4, tokens).astype(np.int32),
        "amount": rng.normal(size=(tokens, 2)).astype(np.float32),
        "tags": rng.integers(0, 5, (tokens, 2)).astype(np.int32),
    }
    labels = np.arange(240) % 2
    fields["letter"][offsets[:-1] + 2] = 1 + labels
    fields["amount"][offsets[:-1] + 2, 1] = 3 * (2 * labels - 1)
    return split_of(Ragged(offsets, fields), labels)


@pytest.fixture(params=FIELDS)
def path(request, split):
    fields = FIELDS[request.param]
    names = {field["name"] for field in fields}
    chosen = Ragged(split.sequences.offsets, {name: split.sequences.fields[name] for name in names})
    fitted = Ngrams.fit(split._replace(sequences=chosen), fields, 2, 0)
    return fitted.path if fitted is not None else pytest.skip("numbers alone have no n-grams")


def predicted(path, sequences):
    with torch.inference_mode():
        return path(*padded(sequences, np.arange(len(sequences)))).argmax(1).numpy()


def test_the_rows_of_the_weights_sum_up_to_the_logits(path, split):
    fields, lengths = padded(split.sequences, np.arange(40))
    logits, rows, norm = path.terms(fields, lengths)
    torch.testing.assert_close(logits, path(fields, lengths), rtol=0, atol=1e-6)
    torch.testing.assert_close(path.weights[rows, :-1].sum(1) / norm + path.bias, logits, rtol=0, atol=1e-5)


def test_contributions_of_all_ngrams_are_the_mean_logit_of_the_class(path, split):
    """Relative to the mean over the classes, and without the bias, for the rows that are taken for the class."""
    sequences = split.sequences
    logits = path(*padded(sequences, np.arange(len(sequences)))).double().numpy()
    unbiased = logits - path.bias.double().numpy()
    added = contributions(path, sequences, logits.argmax(1), scale=2.0)
    for number in range(2):
        of_class = unbiased[logits.argmax(1) == number]
        expected = 2 * (of_class[:, number] - of_class.mean(1)).mean()
        assert added.means[added.classes == number].sum() == pytest.approx(expected, abs=1e-4)


def test_texts_name_the_tokens_in_order(split):
    fields = [LETTERS]
    chosen = Ragged(split.sequences.offsets, {"letter": split.sequences.fields["letter"]})
    path = Ngrams.fit(split._replace(sequences=chosen), fields, 2, 0).path
    rows = [[3, 4, 1], [3, 4, 1], [3, 4, 2]]
    sequences = Ragged(np.array([0, 3, 6, 9]), {"letter": np.concatenate(rows).astype(np.int32)})
    terms = terms_of_ngrams(path, sequences, predicted(path, sequences), TEXTS)
    texts = [term.text for of_class in terms for term in of_class]
    allowed = {
        " ".join(words[a:b])
        for row in rows
        for words in [["<begin>", *(f"l{i}" for i in row), "<end>"]]
        for a in range(5)
        for b in range(a + 1, 6)
    }
    assert set(texts) <= allowed and any(" " in text for text in texts)
    first = {term.text: term.rows for term in terms[0]}
    assert first["l1"] == 2


def test_a_field_is_named_where_there_are_several(split):
    names = ("shop", "letter")
    chosen = Ragged(split.sequences.offsets, {name: split.sequences.fields[name] for name in names})
    path = Ngrams.fit(split._replace(sequences=chosen), [LETTERS, SHOPS], 2, 0).path
    terms = terms_of_ngrams(path, chosen, predicted(path, chosen), TEXTS)
    best = terms[0][0].text, terms[1][0].text
    assert all(text.startswith(("letter: ", "letter & shop: ")) for text in best), best


def test_few_tokens_are_counted_of_many(split, monkeypatch):
    monkeypatch.setattr(terms, "MAX_TOKENS", 100)
    chosen = Ragged(split.sequences.offsets, {"letter": split.sequences.fields["letter"]})
    path = Ngrams.fit(split._replace(sequences=chosen), [LETTERS], 2, 0).path
    found = terms_of_ngrams(path, chosen, predicted(path, chosen), TEXTS)
    assert 0 < max(term.rows for of_class in found for term in of_class) <= 40


def test_tokens_with_spaces_stand_apart(split):
    """Log messages are tokens, and a space between them would hide where one ends."""
    sequences = Ragged(split.sequences.offsets, {"letter": split.sequences.fields["letter"]})
    fitted = Ngrams.fit(split._replace(sequences=sequences), [LETTERS], 2, 0)
    texts = {"letter": lambda ids: [f"message {value} " + 40 * "x" for value in ids]}
    found = terms_of_ngrams(fitted.path, sequences, predicted(fitted.path, sequences), texts)
    terms = [term.text for of_class in found for term in of_class]
    longer = [text for text in terms if text.count("message") > 1]
    assert longer
    assert all(text.count(" → ") >= text.count("message") - 1 and "x" * 40 not in text for text in longer)
