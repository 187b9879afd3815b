"""The statistics that a path of pooled statistics goes by: what each adds to the score of a class, exactly.

The logit of a class is a sum over the features of a row, and each statistic has some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from seqclf.data.ragged import Ragged
from seqclf.evaluation.terms import MAX_TERMS, Term, counted_rows
from seqclf.wide.feature_path import batches
from seqclf.wide.pooled_numbers import STATISTICS
from seqclf.wide.statistics import Statistics


def strongest_statistics(
    path: Statistics, sequences: Ragged, names: Mapping[str, Sequence[str]], scale: float = 1.0
) -> list[list[Term]]:
    """Return for each class the statistics that speak most for it in the rows that the path takes for it.

    The contribution of a statistic to a class is what it adds to the logit of the class, minus what it adds to the
    logits of all classes on average, as a mean over the rows that the path takes for the class. It is relative to the
    mean of the training rows. Together with the bias, the contributions of all statistics are the logits, up to a
    constant for all classes. "high" and "low" tell on which side of the training mean these rows are on average.

    Args:
        path: Fitted path.
        sequences: Rows that are counted, spread evenly where they have many tokens.
        names: Name of each channel of each number field.
        scale: Factor of the logits of the path in the model.
    """
    added, position, taken = contributions(path, sequences, scale)
    return strongest(added, position > 0, taken, statistic_texts(path.names, names))


def statistic_texts(fields: Iterable[str], names: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the name of each statistic, in the order of `Pooled.columns`. `names`: see `strongest_statistics`."""
    channels = [channel for name in fields for channel in names[name]]
    return [f"{statistic} {channel}" for statistic in STATISTICS for channel in channels] + ["number of tokens"]


def strongest(added: np.ndarray, is_high: np.ndarray, taken: np.ndarray, texts: Sequence[str]) -> list[list[Term]]:
    """Return the features that add most to each class.

    Args:
        added: (C, P) what each of P features adds to each of C classes.
        is_high: (C, P) whether the feature is high where it does.
        taken: (C,) rows that are taken for the class.
        texts: Name of each feature.
    """
    result = []
    for values, high, rows in zip(added, is_high, taken.tolist(), strict=True):
        best = [at for at in np.argsort(-values, kind="stable")[:MAX_TERMS] if values[at] > 0]
        result.append([Term(f"{'high' if high[at] else 'low'} {texts[at]}", float(values[at]), rows) for at in best])
    return result


def contributions(path: Statistics, sequences: Ragged, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the contributions (C, P) of all P statistics to each class. For the arguments, see `strongest_statistics`.

    Also returned are the means (C, P) of the scaled statistics in the rows that are taken for the class, and the
    numbers (C,) of these rows. Without such rows, both are 0.
    """
    rows = counted_rows(sequences)
    order = rows[np.argsort(sequences.lengths[rows], kind="stable")]
    classes, statistics = path.weight.shape[1], len(path.center)
    sums, taken = np.zeros((classes, path.size)), np.zeros(classes, np.int64)
    with torch.inference_mode():
        for part in batches(sequences.lengths[order]):
            features = path.features(*path.batch(sequences, order[part]))
            predicted = path.head(features).argmax(1).numpy()
            np.add.at(sums, predicted, features.numpy())
            taken += np.bincount(predicted, minlength=classes)
    means = sums / np.maximum(taken, 1)[:, None]
    weight = path.weight.double().numpy()
    centred = np.where(taken[:, None] > 0, means - path.mean.double().numpy(), 0)
    of_features = scale * centred * (weight - weight.mean(axis=1, keepdims=True)).T
    of_steps = of_features[:, statistics:].reshape(classes, statistics, path.steps).sum(axis=2)
    return of_features[:, :statistics] + of_steps, means[:, :statistics], taken
