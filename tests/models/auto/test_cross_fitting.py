"""Cross-fitted logits: each row gets the logits of weights of heads that other rows set."""

import numpy as np
import pytest
import torch
from models.auto.conftest import CATEGORY, NUMBER, random_split, training_rows
from scipy.stats import beta, norm

from seqclf.evaluation.holdout import fifths
from seqclf.models.auto import head_weights
from seqclf.models.auto.head_weights import cross_fitted_sums, fit_head_weights
from seqclf.models.auto.heads_classifier import HeadsClassifier
from seqclf.models.network import SequenceNetwork, cross_fits, vote

FIELDS = [NUMBER, CATEGORY]
TWO = {"heads": ["recurrent", "recurrent"]}


@torch.inference_mode()
def weighed_rows(network):
    """Return validation rows whose labels the network knows in three of four, after they set its weights."""
    rows = training_rows(random_split(FIELDS, rows=50, seed=4))
    logits = final_logits(network, rows)
    rows.labels[:] = (logits - logits.mean(axis=0)).argmax(axis=1)
    rows.labels[::4] = (rows.labels[::4] + 1) % 3
    network.fit_to_validation(rows)
    return rows


@torch.inference_mode()
def final_logits(network, rows):
    (batch,) = rows.batches(max_tokens=2**30)
    return network(batch.fields, batch.lengths, batch.lengths.numpy()).numpy()[np.argsort(batch.rows)]


@torch.inference_mode()
def by_a_loop(network, rows, fifth, member=0):
    """Return the logits (N, C) by weights without the row's fifth, which are scaled row by row."""
    heads = []
    for row in range(len(rows)):
        (batch,) = rows.batches(np.array([row]))
        heads.append(torch.cat(network.head_logits(batch.fields, batch.lengths, batch.lengths.numpy())[member]).numpy())
    heads, weights, found = np.stack(heads, 1), network.weights[member].numpy(), []
    for row, number in enumerate(fifth):
        others = np.flatnonzero(fifth != number)
        own = fit_head_weights(heads[:, others], rows.labels[others])
        sums = [[np.tensordot(part, heads[:, other], 1) for other in others] for part in (weights, own)]
        size, own_size = (np.mean([np.var(one) for one in part]) for part in sums)
        found.append(np.sqrt(size / own_size) * np.tensordot(own, heads[:, row], 1))
    return np.stack(found)


def test_logits_equal_those_of_a_plain_loop_in_the_order_of_the_rows(fitted, monkeypatch):
    network = fitted(FIELDS, **TWO)
    rows = weighed_rows(network)
    fifth = fifths(rows.labels)
    expected = by_a_loop(network, rows, fifth)
    np.testing.assert_allclose(network.cross_fitted_logits(rows, fifth), expected, atol=1e-3)
    monkeypatch.setattr(head_weights, "WEIGHTED_ROWS", 30)
    chosen = np.sort(rows.sample(30, 2**62, network.config.front.kernel_seed))
    differs = np.abs(network.cross_fitted_logits(rows, fifth) - final_logits(network, rows)).max(axis=1) > 1e-4
    assert set(np.flatnonzero(differs)) <= set(chosen) and differs.sum() > 20


def test_an_ensemble_votes_and_a_single_head_has_nothing_to_leave_out(fitted):
    network = fitted(FIELDS, **TWO, members=2)
    rows = weighed_rows(network)
    fifth = fifths(rows.labels)
    members = np.stack([by_a_loop(network, rows, fifth, member) for member in range(2)])
    expected = vote(torch.from_numpy(members)).numpy()
    np.testing.assert_allclose(network.cross_fitted_logits(rows, fifth), expected, atol=1e-3)
    assert fitted(FIELDS, heads=["recurrent"]).cross_fitted_logits(rows, fifth) is None


def test_only_a_class_that_leaves_out_what_it_sets_cross_fits():
    setting = type("Setting", (HeadsClassifier,), {"fit_to_validation": lambda self, rows: "set"})
    both = type("Both", (setting,), {"cross_fitted_logits": lambda self, rows, fifth: None})
    found = [cross_fits(kind) for kind in (SequenceNetwork, HeadsClassifier, setting, both, type("Sub", (both,), {}))]
    assert found == [True, True, False, True, True]
    alone = type("Alone", (SequenceNetwork,), {"fit_to_validation": None, "cross_fitted_logits": None})
    assert [cross_fits(kind, 2) for kind in (SequenceNetwork, HeadsClassifier, alone)] == [True, True, False]


@pytest.mark.parametrize(("positives", "draws"), [(10, 100), (30, 100), (60, 60)])
def test_thresholds_by_cross_fitted_logits_find_the_recall_in_new_rows(positives, draws):
    """The rank on average misses the target by at most .02, and the rank of *sure* misses it in at most .07 of draws.

    The scores of heads are normal with a correlation of .4, so that the recall of new rows is known exactly.
    """
    generator, target, found, missed = np.random.default_rng(1), 0.8, [], []
    strengths, scales = np.array([3, 2.5, 2]), np.array([3, 0.3, 1])
    labels = np.repeat([1, 0], [positives, 9 * positives])
    covariance = 0.4 + 0.6 * np.eye(3)
    average = int(np.ceil(target * (positives + 1)))
    sure = next((k for k in range(1, positives + 1) if beta.sf(target, k, positives - k + 1) >= 0.95), None)
    assert (sure is None) == (positives == 10)
    for _ in range(draws):
        noise = generator.multivariate_normal(np.zeros(3), covariance, len(labels))
        margins = (noise + np.outer(labels - 0.5, strengths) - 1) * scales
        logits = np.stack([np.zeros_like(margins), margins], axis=2).transpose(1, 0, 2)
        weights = fit_head_weights(logits, labels)
        sums = cross_fitted_sums(logits, labels, np.ones(len(labels)), weights, fifths(labels))
        ranked = np.sort((sums[:, 1] - sums[:, 0])[labels == 1])[::-1]
        scaled = weights * scales
        new = norm(scaled @ (strengths / 2 - 1), np.sqrt(scaled @ covariance @ scaled))
        found.append(new.sf(ranked[average - 1]))
        missed.append(sure is not None and new.sf(ranked[sure - 1]) < target)
    assert np.mean(found) >= target - 0.02 and np.mean(missed) <= 0.07
