"""The worst mistakes of a model: wrong rows whose label it called the least probable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.token_table import DescribedRow, TokenTable
from seqclf.evaluation.results import MAX_MISTAKES


class MistakeSample(NamedTuple):
    """A mistake as plain values, for tables of loggers. `tokens`: the original text, or what a model reads."""

    id: str
    label: str
    predicted: str
    probability: float
    length: int
    tokens: str


class Mistake(NamedTuple):
    """A wrong row. `probability` is that of its true label. `length` counts tokens before truncation.

    `tokens`: the first and last tokens as a model reads them. `texts`: field → original text, for fields of texts.
    `table`: the same tokens with a column per field. `contributions`: of the tokens of the table to the prediction, in
    log-odds, None for one that was not read, and in place of all if they are not explained.
    """

    id: str
    label: str
    predicted: str
    probability: float
    length: int
    tokens: str
    texts: Mapping[str, str]
    table: TokenTable
    contributions: Sequence[float | None] | None = None

    @property
    def sample(self) -> MistakeSample:
        tokens = "\n".join(self.texts.values()) or self.tokens
        return MistakeSample(self.id, self.label, self.predicted, self.probability, self.length, tokens)


def worst_mistakes(
    labels: np.ndarray,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    lengths: np.ndarray,
    classes: list[str],
    describe_row: Callable[[int], DescribedRow],
) -> list[Mistake]:
    """At most `MAX_MISTAKES` wrong rows, the lowest probability of the true label first.

    `labels`, `predicted`, `lengths`: (N,). `probabilities`: (N, C). `describe_row`: called for these rows only.
    """
    wrong = np.flatnonzero(labels != predicted)
    of_label = probabilities[wrong, labels[wrong]]
    order = np.argsort(of_label, kind="stable")[:MAX_MISTAKES]
    mistakes = []
    for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True):
        described = describe_row(row)
        label, prediction = classes[labels[row]], classes[predicted[row]]
        mistakes.append(
            Mistake(
                described.id,
                label,
                prediction,
                probability,
                int(lengths[row]),
                described.tokens,
                described.texts,
                described.table,
                described.contributions,
            )
        )
    return mistakes
