"""The n-grams head against counts in plain Python, and its fit."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from models.auto.conftest import CATEGORY, rows_of

from seqclf.models.auto.ngrams_head import END, FACTOR, LONGEST, PRIME, SALT, START, NgramsHead

OTHER = {**CATEGORY, "name": "other"}


def grams_of(tokens):
    marked = ["start", *tokens, "end"]
    grams = [
        tuple(marked[end - n + 1 : end + 1])
        for n in range(1, LONGEST + 1)
        for end in range(n - 1, len(marked))
        if not (n == 1 and end == 0)
    ]
    return Counter(grams)


def code_of(gram):
    code = 0
    for token in reversed(gram):
        number = {"start": START, "end": END}[token] if isinstance(token, str) else token + 1
        code = (code * FACTOR + number) % PRIME
    return (code * SALT + len(gram)) % PRIME


def logits_of(head, sequences):
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    ids = torch.zeros(len(sequences), int(lengths.max()), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : len(sequence)] = torch.as_tensor(sequence)
    return head({"token": ids}, lengths, None, None)


def fitted_head(sequences, labels, classes, groups=None):
    head = NgramsHead(None, [CATEGORY], classes).eval()
    head.fit(rows_of({"token": sequences}, labels, classes, groups), None, None)
    return head


@pytest.fixture(scope="module")
def letters():
    random = np.random.default_rng(0)
    sequences = [random.integers(1, 5, random.integers(1, 9)) for _ in range(80)]
    return sequences, np.array([int(1 in sequence[:2]) for sequence in sequences])


def test_logits_are_the_sum_of_the_rows_of_known_ngrams(letters):
    """Rows that plain Python finds by the codes of the n-grams, and values by the training rows that hold them."""
    sequences, labels = letters
    head = fitted_head(sequences, labels, 2)
    counts = [grams_of(sequence.tolist()) for sequence in sequences]
    rows = Counter(gram for count in counts for gram in count)
    table, known = head.table.double().numpy(), head.known.tolist()
    expected = np.zeros((len(sequences), 3))
    for row, count in enumerate(counts):
        for gram, times in count.items():
            code = code_of(gram)
            if known[code % len(known)] == code:
                assert rows[gram] >= 2
                value = math.log((1 + len(sequences)) / (1 + rows[gram])) + 1
                assert table[code % len(known), 2] == pytest.approx(value**2)
                expected[row] += times * table[code % len(known)]
    expected = expected[:, :2] / np.sqrt(expected[:, 2:]) + head.bias.numpy()
    np.testing.assert_allclose(logits_of(head, sequences).numpy(), expected, atol=1e-5)
    # Few n-grams share a bucket with a more frequent one.
    assert sum(code >= 0 for code in known) > 0.95 * sum(number >= 2 for number in rows.values())


def test_an_unknown_ngram_counts_for_nothing(letters):
    head = fitted_head(*letters, 2)
    torch.testing.assert_close(logits_of(head, [[17, 18, 19]]), logits_of(head, [[11, 12, 13]]))


def test_an_order_at_the_end_tells_the_class():
    random = np.random.default_rng(1)
    sequences = [random.integers(1, 9, random.integers(4, 12)) for _ in range(300)]
    labels = np.arange(300) % 3
    for sequence, label in zip(sequences, labels, strict=True):
        sequence[-2:] = [[1, 2], [2, 1], [3, 3]][label]
    head = fitted_head(sequences[:200], labels[:200], 3)
    assert (logits_of(head, sequences[200:]).argmax(1).numpy() == labels[200:]).mean() > 0.95


def test_random_labels_give_the_frequencies_of_the_classes():
    random = np.random.default_rng(2)
    sequences = [random.integers(1, 9, 10) for _ in range(400)]
    labels = (random.random(400) < 0.2).astype(int)
    found = logits_of(fitted_head(sequences, labels, 2), sequences).softmax(1)[:, 1]
    assert float(found.std()) < 0.05 and float(found.mean()) == pytest.approx(labels.mean(), abs=0.05)


def test_rows_of_a_group_are_held_out_together():
    """Labels that belong to a group, not to its tokens: a copy of a held-out row in training would tell its label."""
    random = np.random.default_rng(3)
    distinct = [random.integers(1, 40, 6) for _ in range(40)]
    groups = np.repeat(np.arange(40), 4)
    labels = random.integers(0, 2, 40)[groups]
    sequences = [distinct[group] for group in groups]
    spread = {name: float(logits_of(fitted_head(sequences, labels, 2, given), sequences)[:, 0].std())
              for name, given in [("with", groups), ("without", None)]}  # fmt: skip
    assert spread["with"] < 0.3 * spread["without"]


@pytest.mark.parametrize("classes", [2, 1000])
def test_classes_without_rows_and_many_classes(classes):
    sequences, labels = [np.array([1, 2, 3])] * 6, np.zeros(6, int)
    found = logits_of(fitted_head(sequences, labels, classes), sequences)
    assert found.shape == (6, classes) and torch.isfinite(found).all() and (found.argmax(1) == 0).all()


def test_several_fields_are_read_alone_and_together():
    random = np.random.default_rng(4)
    sequences = {name: [random.integers(1, 4, 6) for _ in range(300)] for name in ("token", "other")}
    both = np.array([(a == b).any() for a, b in zip(*sequences.values(), strict=True)])
    head = NgramsHead(None, [CATEGORY, OTHER], 2).eval()
    rows = rows_of(sequences, both.astype(int), 2)
    head.fit(rows, None, None)
    fields = {name: torch.as_tensor(np.stack(values)) for name, values in sequences.items()}
    found = head(fields, torch.full((300,), 6), None, None).argmax(1).numpy()
    assert (found == both).mean() > 0.95
