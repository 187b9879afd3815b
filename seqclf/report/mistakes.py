"""The worst mistakes of a model: misclassified rows whose true label has the lowest predicted probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.token_table import DescribedRow
from seqclf.evaluation.results import MAX_MISTAKES, Evaluation


class Mistake(NamedTuple):
    """A misclassified row.

    `probability`: predicted probability of the true label. `length`: number of tokens before truncation. `row`: the
    texts and tokens of the row.
    """

    label: str
    predicted: str
    probability: float
    length: int
    row: DescribedRow


def worst_mistakes(
    evaluation: Evaluation, classes: list[str], describe_row: Callable[[int], DescribedRow]
) -> list[Mistake]:
    """Return at most `MAX_MISTAKES` misclassified rows of the last split.

    The row whose true label has the lowest predicted probability comes first. `describe_row`: function that describes
    the row with a given number. `describe_row` is called only for the returned rows.
    """
    labels, predicted, probabilities = evaluation.last.labels, evaluation.predicted, evaluation.probabilities
    wrong = np.flatnonzero(labels != predicted)
    of_label = probabilities[wrong, labels[wrong]]
    order = np.argsort(of_label, kind="stable")[:MAX_MISTAKES]
    return [
        Mistake(
            label=classes[labels[row]],
            predicted=classes[predicted[row]],
            probability=probability,
            length=int(evaluation.last.lengths[row]),
            row=describe_row(row),
        )
        for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True)
    ]
