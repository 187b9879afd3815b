"""The worst mistakes of a model: wrong rows whose label it called the least probable."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqclf.evaluation.results import MOST_MISTAKES


class Mistake(NamedTuple):
    """A wrong row. `probability` is that of its true label. `length` counts tokens before truncation."""

    id: str
    label: str
    predicted: str
    probability: float
    length: int
    tokens: str


def worst_mistakes(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    lengths: np.ndarray,
    classes: list[str],
    describe_row: Callable[[int], tuple[str, str]],
) -> list[Mistake]:
    """At most `MOST_MISTAKES` wrong rows, the lowest probability of the true label first.

    `labels`, `predicted`, `lengths`: (N,). `probabilities`: (N, C). `describe_row` gives the id and the tokens of a row
    as text.
    """
    wrong = np.flatnonzero(labels != predicted)
    of_label = probabilities[wrong, labels[wrong]]
    order = np.argsort(of_label, kind="stable")[:MOST_MISTAKES]
    mistakes = []
    for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True):
        id, tokens = describe_row(row)
        label, prediction = classes[labels[row]], classes[predicted[row]]
        mistakes.append(Mistake(id, label, prediction, probability, int(lengths[row]), tokens))
    return mistakes
