"""N-grams of tokens that speak for a class."""

from __future__ import annotations

from dataclasses import dataclass

from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class Term(JsonResult):
    """An n-gram that speaks for a class.

    `contribution`: mean of what it adds to the logit of the class over that of the other classes, in the rows that are
    taken for the class. `rows`: number of these rows that hold it.
    """

    text: str
    contribution: float
    rows: int
