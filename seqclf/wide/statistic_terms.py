"""The statistics that a path of pooled statistics goes by: what each adds to the score of a class, exactly.

The logit of a class is a sum over the features of a row, and each statistic has some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from seqclf.data.ragged import Ragged
from seqclf.evaluation.terms import Term, counted_rows
from seqclf.wide.feature_path import batches
from seqclf.wide.statistics import Statistics


def terms_of_statistics(
    path: Statistics,
    sequences: Ragged,
    predicted: np.ndarray,
    names: Mapping[str, Sequence[str]],
    scale: float = 1.0,
) -> list[list[Term]]:
    """Return for each class what the statistics add to it in the rows that are taken for it, the most first.

    The contribution of a statistic to a class is what it adds to the logit of the class, minus what it adds to the
    logits of all classes on average, as a mean over the rows that are taken for the class. It is relative to the mean
    of the training rows. Together with the bias, the contributions of all statistics are the logits, up to a
    constant for all classes. "high" and "low" tell on which side of the training mean these rows are on average.

    Args:
        path: Fitted path.
        sequences: N rows that are counted, spread evenly where they have many tokens.
        predicted: (N,) class number that each row is taken for.
        names: Name of each channel of each number field.
        scale: Factor of the logits of the path in the model.
    """
    added, position, taken = contributions(path, sequences, predicted, scale)
    channels = [channel for name in path.names for channel in names[name]]
    return named_terms(added, position > 0, taken, path.pool.texts(channels))


def named_terms(added: np.ndarray, is_high: np.ndarray, taken: np.ndarray, texts: Sequence[str]) -> list[list[Term]]:
    """Return for each class the features that add anything to it, the most first.

    Args:
        added: (C, P) what each of P features adds to each of C classes.
        is_high: (C, P) whether the feature is high where it does.
        taken: (C,) rows that are taken for the class.
        texts: Name of each feature.
    """
    result = []
    for values, high, rows in zip(added, is_high, taken.tolist(), strict=True):
        order = [at for at in np.argsort(-values, kind="stable") if values[at] != 0]
        result.append([Term(f"{'high' if high[at] else 'low'} {texts[at]}", float(values[at]), rows) for at in order])
    return result


def contributions(
    path: Statistics, sequences: Ragged, predicted: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the contributions (C, P) of all P statistics to each class. For the arguments, see `terms_of_statistics`.

    Also returned are the means (C, P) of the scaled statistics in the rows that are taken for the class, and the
    numbers (C,) of these rows. Without such rows, both are 0.
    """
    rows = counted_rows(sequences)
    order = rows[np.argsort(sequences.lengths[rows], kind="stable")]
    classes, statistics = path.weight.shape[1], len(path.center)
    sums, taken = np.zeros((classes, path.size)), np.bincount(predicted[rows], minlength=classes)
    with torch.inference_mode():
        for part in batches(sequences.lengths[order]):
            features = path.features(*path.batch(sequences, order[part]))
            np.add.at(sums, predicted[order[part]], features.numpy())
    means = sums / np.maximum(taken, 1)[:, None]
    weight = path.weight.double().numpy()
    centred = np.where(taken[:, None] > 0, means - path.mean.double().numpy(), 0)
    of_features = scale * centred * (weight - weight.mean(axis=1, keepdims=True)).T
    of_steps = of_features[:, statistics:].reshape(classes, statistics, path.steps).sum(axis=2)
    return of_features[:, :statistics] + of_steps, means[:, :statistics], taken
