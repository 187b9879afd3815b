"""Gradient boosting on features of rows: small trees whose number left-out rows choose, as arrays of comparisons.

scikit-learn grows the trees on bins of the features. A cut between two bins lies where no training row is near. So the
side on which a row falls does not depend on the rounding of a feature, which differs between programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqclf.models.heads.scales import choose_scales
from seqclf.wide.folds import draw_folds

LEAVES = 8
LEARNING_RATE = 0.1
FEATURE_SHARE, MIN_TRIED = 0.3, 20  # features that are tried at a node, and how many at least
PENALTY = 1.0  # L2 on the values of leaves
# Trees of all classes together, and iterations, each of which grows a tree for each class; two classes share one.
MAX_TREES, MIN_ITERATIONS, MAX_ITERATIONS = 900, 30, 150
FOLDS = 5
MAX_BINS = 64
MIN_GAP = 1e-6  # distance of two values, relative to them or to most of the values, that a cut needs between them
CUT_AT = 0.382  # place of a cut in its gap; a mean of values often lies in the middle
SINGLE_THREAD_ROWS = 5_000  # rows below which several threads are slower than one


class Trees(NamedTuple):
    """R trees with up to L leaves, as arrays. Logits = (sum over trees of the value of the leaf) @ spread + bias.

    `feature`, `threshold`: (R, L - 1) a node goes left where the feature is at most the threshold. `path`: (R, L - 1,
    L) 1 where the path to a leaf goes left at the node, -1 where it goes right, 0 where it does not meet the node.
    `values`: (R, L) of the leaves. The trees of one iteration follow one another. `spread`: (K, C), where K is the
    number of trees of an iteration. `bias`: (C,).
    """

    feature: np.ndarray
    threshold: np.ndarray
    path: np.ndarray
    values: np.ndarray
    spread: np.ndarray
    bias: np.ndarray


class Boosted(NamedTuple):
    """Trees, and the logits (N, C) of the training rows by fits that left them out, NaN where no fit did."""

    trees: Trees
    held_out: np.ndarray


def max_iterations(classes: int) -> int:
    """Return the largest number of iterations for a number of classes.

    >>> [max_iterations(classes) for classes in (2, 9, 30)]
    [150, 100, 30]
    """
    trees = 1 if classes == 2 else classes
    return min(MAX_ITERATIONS, max(MIN_ITERATIONS, MAX_TREES // trees))


def fit_boosting(
    features: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, classes: int, seed: int
) -> Boosted:
    """Fit trees to N rows. Folds choose the number of iterations and the scale of the logits, by log loss.

    Args:
        features: (N, F) float32.
        labels: (N,) class numbers, of two classes at least.
        groups: (N,) rows of one group are in one fold.
        classes: Number of classes C, of which some may have no row.
        seed: Seed of the folds and of the features that nodes try.
    """
    edges, binned = _bins(features)
    fold = draw_folds(len(labels), groups, FOLDS, seed)
    fits = list(_fold_fits(binned, labels, fold, range(FOLDS), classes, max_iterations(classes), seed))
    iterations = _best_iterations(fits, labels, binned) if fits else MIN_ITERATIONS
    held_out = np.full((len(labels), classes), np.nan)
    for fit, out in fits:
        held_out[out] = fit.logits(binned[out], iterations)
    known = ~np.isnan(held_out[:, 0])
    _, scale = choose_scales(held_out[None, known], labels[known], np.ones(1))
    fit = _fit(binned, labels, classes, iterations, seed)
    return Boosted(fit.trees(edges, float(scale[0])), held_out * scale[0])


def quick_look(
    features: np.ndarray, labels: np.ndarray, groups: np.ndarray | None, classes: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (M,) that the first fold leaves out, and their logits (M, C), by half of the iterations.

    For the arguments, see `fit_boosting`.
    """
    _, binned = _bins(features)
    fold = draw_folds(len(labels), groups, FOLDS, seed)
    fits = list(_fold_fits(binned, labels, fold, range(1), classes, max_iterations(classes) // 2, seed))
    if not fits:
        return np.arange(0), np.zeros((0, classes))
    (fit, out), *_ = fits
    return out, fit.logits(binned[out], _best_iterations(fits, labels, binned))


class _Fit(NamedTuple):
    """A model of scikit-learn. `spread`, `bias`: see `Trees`, without the model's own start."""

    model: Any
    spread: np.ndarray
    bias: np.ndarray

    def stages(self, binned: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the logits (N, C) after each iteration."""
        for scores in self.model.staged_decision_function(binned):
            yield scores.reshape(len(binned), -1) @ self.spread + self.bias

    def logits(self, binned: np.ndarray, iterations: int) -> np.ndarray:
        """Return the logits (N, C) after some iterations."""
        return next(logits for number, logits in enumerate(self.stages(binned), 1) if number == iterations)

    def trees(self, edges: Sequence[np.ndarray], scale: float) -> Trees:
        """Return the trees as arrays. `edges`: cuts of each feature. `scale`: factor of the logits."""
        nodes = [tree.nodes for trees in self.model._predictors for tree in trees]
        feature = np.zeros((len(nodes), LEAVES - 1), np.int64)
        threshold = np.zeros((len(nodes), LEAVES - 1), np.float32)
        path = np.zeros((len(nodes), LEAVES - 1, LEAVES), np.int64)
        values = np.zeros((len(nodes), LEAVES))
        for number, tree in enumerate(nodes):
            inner = np.flatnonzero(~tree["is_leaf"].astype(bool))
            feature[number, : len(inner)] = tree["feature_idx"][inner]
            cuts = zip(feature[number, : len(inner)], np.floor(tree["num_threshold"][inner]).astype(int), strict=True)
            threshold[number, : len(inner)] = [edges[at][cut] for at, cut in cuts]
            place = {int(node): at for at, node in enumerate(inner)}
            for leaf, (node, turns) in enumerate(_leaves(tree)):
                values[number, leaf] = tree["value"][node]
                for passed, turn in turns:
                    path[number, place[passed], leaf] = turn
        start = self.model._baseline_prediction.ravel() @ self.spread + self.bias
        return Trees(feature, threshold, path, values, scale * self.spread, scale * start)


def _leaves(tree: np.ndarray) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield each leaf, with the nodes on the path to it and the turn at each: 1 for left, -1 for right."""
    waiting: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]
    while waiting:
        node, turns = waiting.pop()
        if tree["is_leaf"][node]:
            yield node, turns
        else:
            waiting += [(int(tree[side][node]), [*turns, (node, turn)]) for side, turn in (("left", 1), ("right", -1))]


def _fold_fits(
    binned: np.ndarray,
    labels: np.ndarray,
    fold: np.ndarray,
    folds: Iterable[int],
    classes: int,
    iterations: int,
    seed: int,
) -> Iterator[tuple[_Fit, np.ndarray]]:
    """Yield a fit without the rows of each fold, and these rows."""
    for number in folds:
        out = fold == number
        if out.any() and len(np.unique(labels[~out])) > 1:
            yield _fit(binned[~out], labels[~out], classes, iterations, seed), np.flatnonzero(out)


def _fit(binned: np.ndarray, labels: np.ndarray, classes: int, iterations: int, seed: int) -> _Fit:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    model = HistGradientBoostingClassifier(
        max_iter=iterations,
        learning_rate=LEARNING_RATE,
        max_leaf_nodes=LEAVES,
        max_features=min(1.0, max(FEATURE_SHARE, MIN_TRIED / binned.shape[1])),
        l2_regularization=PENALTY,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(1 if len(labels) < SINGLE_THREAD_ROWS else None):
        model.fit(binned, labels)
    present = model.classes_
    spread = np.zeros((1 if len(present) == 2 else len(present), classes))
    spread[:, present] = [[-0.5, 0.5]] if len(present) == 2 else np.eye(len(present))
    bias = np.full(classes, -np.log(len(labels) + 1.0))  # logit of a class without rows; scores lie around 0
    bias[present] = 0
    return _Fit(model, spread, bias)


def _best_iterations(fits: Sequence[tuple[_Fit, np.ndarray]], labels: np.ndarray, binned: np.ndarray) -> int:
    """Return the number of iterations of the lowest log loss on the rows that the fits left out."""
    from scipy.special import log_softmax

    losses = [
        [-log_softmax(logits, axis=1)[np.arange(len(out)), labels[out]].sum() for logits in fit.stages(binned[out])]
        for fit, out in fits
    ]
    return int(np.argmin(np.sum(losses, axis=0))) + 1


def _bins(features: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the cuts of each feature, ascending, and the bin (N, F) of each value: the number of cuts below it."""
    edges = [choose_cuts(values) for values in features.T]
    binned = np.empty(features.shape, np.float32)
    for number, (values, cuts) in enumerate(zip(features.T, edges, strict=True)):
        binned[:, number] = np.searchsorted(cuts, values, side="left")
    return edges, binned


def choose_cuts(values: np.ndarray) -> np.ndarray:
    """Return up to `MAX_BINS` - 1 ascending cuts (M,) float32 between values (N,) float32, with rows spread evenly.

    >>> choose_cuts(np.array([0, 0, 1, 2, 2, 2.0000001], np.float32))
    array([0.382, 1.382], dtype=float32)
    """
    known, counts = np.unique(values, return_counts=True)
    gaps = np.diff(known)
    common = np.quantile(np.abs(values), 0.95)
    size = np.maximum(np.maximum(np.abs(known[:-1]), np.abs(known[1:])), common)
    at = np.flatnonzero(gaps > MIN_GAP * size)
    if len(at) >= MAX_BINS:
        below = np.cumsum(counts)[at]
        wanted = len(values) * np.arange(1, MAX_BINS) / MAX_BINS
        at = at[np.unique(np.searchsorted(below, wanted).clip(max=len(at) - 1))]
    return (known[at] + CUT_AT * gaps[at]).astype(np.float32)
