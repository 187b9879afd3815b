"""Scales of the terms of logits: those with the lowest log loss, and finite in any case."""

import numpy as np

from seqclf.models.auto.head_weights import choose_scales


def test_scales_of_terms_are_those_that_the_labels_were_drawn_with():
    generator = np.random.default_rng(0)
    terms = generator.standard_normal((3, 20_000, 4)) * np.array([0.1, 1, 3])[:, None, None]
    logits = np.tensordot([12.0, 0.0, 0.5], terms, 1)
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    found = [choose_scales(terms, labels, np.array(start))[1] for start in ([1.0, 1.0, 1.0], [100.0, 0.0, 9.0])]
    np.testing.assert_allclose(found, 2 * [[12, 0, 0.5]], atol=0.4)
    np.testing.assert_allclose(*found, atol=1e-2)


def test_rows_that_are_all_right_have_finite_scales():
    labels = np.arange(20) % 4
    terms = np.stack([np.eye(4)[labels], np.full((20, 4), -1.4), np.full((20, 4), 0.25)])
    loss, scales = choose_scales(terms, labels, np.ones(3))
    assert np.isfinite(scales).all() and 0 < loss < 0.5


def test_without_rows_scales_are_one():
    loss, scales = choose_scales(np.zeros((2, 0, 3)), np.zeros(0, int), np.full(2, 5.0))
    assert loss == np.inf and (scales == 1).all()
