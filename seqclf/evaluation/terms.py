"""Features of a wide path that speak for a class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from seqclf.data.ragged import Ragged
from seqclf.system.json_result import JsonResult

MAX_TOKENS = 1_000_000  # tokens of the rows that are counted
MAX_TERMS = 10  # features of a class
MIN_PART = 0.01  # part of the contribution of the strongest feature that a feature must have to be shown


@dataclass(frozen=True)
class Term(JsonResult):
    """An n-gram or a statistic that speaks for a class.

    `contribution`: amount that it adds to the logit of the class, minus the mean amount that it adds to the logits of
    all classes, as a mean over the rows that are taken for the class. `rows`: number of these rows that hold the
    n-gram, or of all these rows for a statistic.
    """

    text: str
    contribution: float
    rows: int


def joint_terms(terms: Iterable[Term]) -> list[Term]:
    """Return the strongest terms of several paths. Those with the same text are one term, with the sum of all.

    >>> terms = [Term("high last GCS", 0.25, 9), Term("low mean Urine", 0.5, 9), Term("high last GCS", 0.5, 9)]
    >>> [(term.text, term.contribution) for term in joint_terms(terms)]
    [('high last GCS', 0.75), ('low mean Urine', 0.5)]
    """
    by_text: dict[str, Term] = {}
    for term in terms:
        earlier = by_text.get(term.text)
        sum_of_both = term.contribution + (earlier.contribution if earlier else 0.0)
        by_text[term.text] = replace(term, contribution=sum_of_both)
    best = sorted(by_text.values(), key=lambda term: -term.contribution)
    return [term for term in best[:MAX_TERMS] if term.contribution > max(0, MIN_PART * best[0].contribution)]


def counted_rows(sequences: Ragged) -> np.ndarray:
    """Return the rows that are counted: all, or some that are spread evenly where they have more than `MAX_TOKENS`.

    >>> counted_rows(Ragged(np.array([0, 400_000, 800_000, 1_200_000, 1_600_000]), {})).tolist()
    [0, 3]
    """
    count, tokens = len(sequences), int(sequences.offsets[-1])
    most = max(1, count * MAX_TOKENS // max(tokens, MAX_TOKENS))
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))
