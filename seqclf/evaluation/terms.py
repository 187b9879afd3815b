"""N-grams of tokens that speak for a class."""

from __future__ import annotations

from dataclasses import dataclass

from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class Term(JsonResult):
    """An n-gram that speaks for a class.

    `contribution`: amount that the n-gram adds to the logit of the class, minus the mean amount that it adds to the
    logits of all classes, as a mean over the rows that are taken for the class. `rows`: number of these rows that hold
    the n-gram.
    """

    text: str
    contribution: float
    rows: int
