"""The features that a path of boosted trees goes by: what each adds to the score of a class, exactly.

A row takes one turn at each node on its way to a leaf. The turn adds the difference between the mean output of the rows
beyond it and that of all rows at the node, and these differences sum up to the value of the leaf (Saabas 2014).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from seqclf.data.ragged import Ragged
from seqclf.evaluation.terms import Term, counted_rows
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.feature_path import batches, padded
from seqclf.wide.statistic_terms import named_terms

UNKNOWN = "<unknown>"


def terms_of_trees(
    path: BoostedTrees,
    sequences: Ragged,
    predicted: np.ndarray,
    names: Mapping[str, Sequence[str]],
    texts: Mapping[str, Callable[[np.ndarray], Sequence[str]]],
    scale: float = 1.0,
) -> list[list[Term]]:
    """Return for each class what the statistics and counts add to it in the rows that are taken for it, the most first.

    The contributions of all features to a class are the mean logit of these rows, relative to the mean logit of all
    rows that are counted, minus the mean over all classes. "high" and "low" tell on which side of the thresholds the
    contribution comes from.

    Args:
        path: Fitted path.
        sequences: N rows that are counted, spread evenly where they have many tokens.
        predicted: (N,) class number that each row is taken for.
        names: Name of each channel of each number field.
        texts: Function for each field that is not a number: ids (V,) → texts.
        scale: Factor of the logits of the path in the model.
    """
    features = path.features_of
    channels = [channel for name in features.pool.names for channel in names[name]]
    values = {name: [UNKNOWN, *texts[name](np.arange(1, size))] for name, size in features.counted}
    added, taken = contributions(path, sequences, predicted, scale)
    return named_terms(added.sum(axis=2), added[:, :, 1] > added[:, :, 0], taken, features.texts(channels, values))


def contributions(
    path: BoostedTrees, sequences: Ragged, predicted: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the contributions (C, F, 2) of low and high values of all F features to each class, and the rows (C,).

    The rows are those that are taken for the class. For the arguments, see `terms_of_trees`.
    """
    rows = counted_rows(sequences)
    order = rows[np.argsort(sequences.lengths[rows], kind="stable")]
    classes = path.spread.shape[1]
    own = Ragged(sequences.offsets, {name: sequences.fields[name] for name in path.features_of.names})
    at_leaf = np.zeros((classes, *path.values.shape))  # (C, R, L) rows of each class that reach each leaf
    taken = np.bincount(predicted[rows], minlength=classes)
    with torch.inference_mode():
        for part in batches(sequences.lengths[order]):
            features = path.features_of(*padded(own, order[part]))
            np.add.at(at_leaf, predicted[order[part]], path.reached(features).transpose(0, 1).numpy())
    turns = path.path.numpy()[:, :, None] == np.array([1, -1])[None, None, :, None]  # (R, N, 2, L) left and right
    steps = _steps(at_leaf.sum(axis=0), path.values.double().numpy(), turns)
    passed = np.einsum("crl,rntl->crnt", at_leaf, turns) / np.maximum(taken, 1)[:, None, None, None]
    spread = path.spread.double().numpy()
    of_tree = np.tile(spread - spread.mean(axis=1, keepdims=True), (path.iterations, 1))  # (R, C)
    by_node = scale * of_tree.T[:, :, None, None] * passed * steps
    result = np.zeros((classes, path.features_of.size, 2))
    for number in range(classes):
        np.add.at(result[number], path.feature.numpy().ravel(), by_node[number].reshape(-1, 2))
    return result, taken


def _steps(rows: np.ndarray, values: np.ndarray, turns: np.ndarray) -> np.ndarray:
    """Return what each turn adds to the mean output of the rows at its node, (R, N, 2).

    `rows`, `values`: (R, L) of each leaf. `turns`: (R, N, 2, L) True where a leaf lies beyond a turn.
    """
    counts = np.einsum("rl,rntl->rnt", rows, turns)
    sums = np.einsum("rl,rntl->rnt", rows * values, turns)
    beyond = sums / np.maximum(counts, 1)
    at_node = sums.sum(axis=2, keepdims=True) / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    return beyond - at_node
