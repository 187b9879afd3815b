"""Scales of the terms that logits are a sum of, chosen by rows that a fit left out."""

from __future__ import annotations

import numpy as np

MAX_FACTOR = 1e4  # largest scale of a term, in units of one over its root mean square


def choose_scales(terms: np.ndarray, labels: np.ndarray, start: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the lowest mean log loss of the sum of `terms` (K, N, C), each times a scale, and the scales (K,).

    One imagined row with the mean loss of all rows and classes is added: else, rows that are all right would make the
    scales infinite. In the example, the first term tells the labels of most rows, the second one nothing:

    >>> labels = np.arange(40) % 2
    >>> told = np.eye(2)[np.where(np.arange(40) < 4, 1 - labels, labels)]
    >>> _, scales = choose_scales(np.stack([told, np.eye(2)[np.arange(40) // 2 % 2]]), labels, np.ones(2))
    >>> scales.round(1).tolist()
    [2.1, 0.0]
    """
    from scipy.optimize import minimize

    if not len(labels):
        return np.inf, np.ones(len(terms))
    rows = np.arange(len(labels))
    sizes = np.sqrt((terms**2).mean(axis=(1, 2))) + 1e-9  # the search is faster between terms of one size
    known = terms[:, rows, labels].sum(axis=1) + terms.mean(axis=(1, 2))

    def loss(factors: np.ndarray) -> tuple[float, np.ndarray]:
        logits = np.tensordot(factors / sizes, terms, 1)
        top = logits.max(axis=1, keepdims=True)
        weights = np.exp(logits - top)
        sums = weights.sum(axis=1, keepdims=True)
        log_sum = (np.log(sums) + top).sum() * (1 + 1 / len(rows))
        expected = np.tensordot(terms, weights / sums, 2) * (1 + 1 / len(rows))
        return float(log_sum - known @ (factors / sizes)) / len(rows), (expected - known) / sizes / len(rows)

    found = minimize(loss, start * sizes, jac=True, method="L-BFGS-B", bounds=[(0, MAX_FACTOR)] * len(terms))
    return float(found.fun), found.x / sizes
