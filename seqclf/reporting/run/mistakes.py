"""The rows a model is most wrong about, as a person can read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqclf.evaluation.results import MOST_MISTAKES


class Mistake(NamedTuple):
    """`probability`: of the label that is true."""

    id: str
    label: str
    decided: str
    probability: float
    length: int
    steps: str


def worst_mistakes(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    lengths: np.ndarray,
    classes: list[str],
    spelled: Callable[[int], tuple[str, str]],
) -> list[Mistake]:
    """The wrong rows, at most `MOST_MISTAKES`, whose label was called the least probable; `spelled`: id and steps of a
    row."""
    wrong = np.flatnonzero(labels != predicted)
    own = probabilities[wrong, labels[wrong]]
    found = []
    for row, probability in [
        (int(wrong[place]), float(own[place])) for place in np.argsort(own, kind="stable")[:MOST_MISTAKES]
    ]:
        id, steps = spelled(row)
        found.append(Mistake(id, classes[labels[row]], classes[predicted[row]], probability, int(lengths[row]), steps))
    return found
