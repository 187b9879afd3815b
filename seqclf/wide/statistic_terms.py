"""The statistics that a path of pooled statistics goes by: what each adds to the score of a class, exactly.

The logit of a class is a sum over the features of a row, and each statistic has some of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    channels = [channel for name in path.names for channel in names[name]]
    texts = [f"{statistic} {channel}" for statistic in STATISTICS for channel in channels] + ["number of tokens"]
    added, position, taken = contributions(path, sequences, scale)
    result = []
    for number, values in enumerate(added):
        best = np.argsort(-values, kind="stable")[:MAX_TERMS]
        side = np.where(position[number] > 0, "high", "low")
        shown = [(f"{side[at]} {texts[at]}", float(values[at])) for at in best if values[at] > 0]
        result.append([Term(text, value, int(taken[number])) for text, value in shown])
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
