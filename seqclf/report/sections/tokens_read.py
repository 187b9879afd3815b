"""Tokens read of a report: accuracy against the share of tokens that an adaptive network reads."""

from __future__ import annotations

import math
from typing import ClassVar

from seqclf.documents.figures import picture
from seqclf.documents.formatting import percent, score
from seqclf.documents.html import Section, Table
from seqclf.evaluation.tokens_curve import TOLERATED_LOSS, TOLERATED_SHARE, TokensCurve
from seqclf.report.figures import tokens_curves
from seqclf.report.report import Report
from seqclf.report.section import ReportSection
from seqclf.report.verdict import halting_sentence

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the rows of the table


class TokensReadSection(ReportSection):
    """Curve of macro recall against tokens read, with the operating point, and its numbers."""

    position: ClassVar[float] = 25

    def build(self, report: Report) -> Section | None:
        """Return the curves. None for a network that always reads whole sequences."""
        curve = report.result.halting
        if curve is None:
            return None
        figure = picture(
            lambda width_in: tokens_curves(curve, width_in),
            "macro recall by share of tokens read, numbers in the table below",
        )
        context = {
            "picture": figure,
            "table": _table(curve),
            "sentence": halting_sentence(curve, report.split),
            "splits": list(curve.splits),
            "tolerated": f"{100 * TOLERATED_LOSS:g}",
            "kept": f"{1 - TOLERATED_SHARE:.0%}",
        }
        return Section("run/tokens_read.html", context)


def _budget(tokens: float) -> float:
    """Return a budget of four digits that gives a point with this share of tokens.

    >>> _budget(0.86131)
    0.8614
    """
    return min(1.0, math.ceil(tokens * 1e4) / 1e4)


def _table(curve: TokensCurve) -> Table:
    """A row for each budget, for the operating point and for reading everything."""
    validation = curve.splits["validation"]
    knee = validation.index(curve.point("validation"))
    within = {max((i for i, point in enumerate(validation) if point.tokens <= budget), default=0) for budget in BUDGETS}
    shown = sorted({*within, knee, len(validation) - 1})
    columns: dict[str, str] = {"budget": "text"}
    for split in curve.splits:
        columns |= {f"tokens, {split}": "number", f"macro recall, {split}": "number", f"accuracy, {split}": "number"}
    rows = []
    for index in shown:
        name = "1" if index == len(validation) - 1 else f"{_budget(validation[index].tokens):g}"
        cells: list[object] = [f"{name} (the bundle's)" if index == knee else name]
        for points in curve.splits.values():
            point = points[index]
            cells += [percent(point.tokens), score(point.recall), score(point.accuracy)]
        rows.append(cells)
    return Table(columns, rows, strong=shown.index(knee), caption="Scores by share of tokens read")
