"""Weights of heads by few and many validation rows."""

import numpy as np
import pytest
from scipy.special import log_softmax

from seqclf.models.auto.head_weights import fit_head_weights


def draw(generator, rows, strengths, shared=0.0):
    """Logits of heads that know the class with some strength, each with errors of its own and shared ones."""
    labels = generator.integers(0, 3, rows)
    truth = np.eye(3)[labels]
    common = generator.normal(size=(rows, 3))
    heads = [
        strength * (truth + shared * common + generator.normal(size=(rows, 3)) * (1 - shared)) for strength in strengths
    ]
    return np.stack(heads), labels


def loss_of(weights, logits, labels):
    return -log_softmax(np.tensordot(weights, logits, 1), axis=1)[np.arange(len(labels)), labels].mean()


def test_many_rows_give_the_weights_of_a_multinomial_regression():
    generator = np.random.default_rng(0)
    logits, labels = draw(generator, 20_000, [1.0, 0.5])
    found = fit_head_weights(logits, labels)
    best = min(
        (loss_of(np.array(pair), logits, labels), pair)
        for pair in np.array(np.meshgrid(np.linspace(0, 5, 26), np.linspace(0, 5, 26))).T.reshape(-1, 2).tolist()
    )
    assert loss_of(found, logits, labels) <= best[0] + 1e-4


@pytest.mark.parametrize("rows", [10, 30, 100])
def test_few_rows_cost_less_than_the_best_head_alone_gains(rows):
    """Over many draws, weights by few rows are about as good as the better head, and better than equal weights."""
    generator = np.random.default_rng(1)
    found, equal, alone = [], [], []
    for _ in range(60):
        logits, labels = draw(generator, rows + 1000, [2.0, 0.05], shared=0.3)
        chosen = fit_head_weights(logits[:, :rows], labels[:rows])
        rest = logits[:, rows:], labels[rows:]
        found.append(loss_of(chosen, *rest))
        equal.append(loss_of(np.array([0.5, 0.5]), *rest))
        alone.append(loss_of(np.array([1.0, 0.0]), *rest))
    assert np.mean(found) < np.mean(equal)
    assert np.mean(found) < np.mean(alone) + 0.02


def test_row_weights_count_as_repeated_rows():
    generator = np.random.default_rng(2)
    logits, labels = draw(generator, 50, [1.0, 1.0])
    twice = np.concatenate([np.arange(50), np.arange(25)])
    weights = np.where(np.arange(50) < 25, 2.0, 1.0)
    np.testing.assert_allclose(
        fit_head_weights(logits, labels, weights), fit_head_weights(logits[:, twice], labels[twice]), atol=1e-4
    )
