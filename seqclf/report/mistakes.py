"""The worst mistakes of a model: misclassified rows whose true label has the lowest predicted probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.token_table import DescribedRow, TokenTable
from seqclf.evaluation.results import MAX_MISTAKES, Evaluation


class MistakeSample(NamedTuple):
    """A misclassified row as plain values, which experiment loggers show in a table.

    `tokens`: the original text of the row, or its decoded tokens if the row has no text.
    """

    id: str
    label: str
    predicted: str
    probability: float
    length: int
    tokens: str


class Mistake(NamedTuple):
    """A misclassified row.

    `probability`: predicted probability of the true label. `length`: number of tokens before truncation. `tokens`: the
    first and last tokens of the row, as the model reads them. `texts`: dict text field → original text. `table`: the
    first and last tokens of the row, with one column for each field. `contributions`: list with the contribution of
    each token in `table` to the prediction, in log-odds. An entry is `None` if the model did not read the token. The
    list itself is `None` if no contributions were computed.
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
            **describe_row(row)._asdict(),
        )
        for row, probability in zip(wrong[order].tolist(), of_label[order].tolist(), strict=True)
    ]
