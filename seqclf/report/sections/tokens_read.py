"""The section of tokens read: scores against the fraction of tokens that an adaptive network reads."""

from __future__ import annotations

import math

from seqclf.documents.blocks import Section, Table, Text
from seqclf.documents.formatting import percent, score
from seqclf.evaluation.tokens_curve import TOLERATED_LOSS, TOLERATED_SHARE, TokensCurve
from seqclf.report.report import Report
from seqclf.report.verdict import halting_sentence

BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # limits on the fraction of tokens read


def tokens_read_section(report: Report) -> Section | None:
    """Return a table of macro recall, or `None` if the network always reads whole sequences."""
    curve = report.result.halting
    if curve is None:
        return None
    *_, last = curve.splits
    other = f" The scores of {last} have the same thresholds, and chose nothing." if len(curve.splits) > 1 else ""
    text = (
        "It decides for each sequence when to stop. The bold row is the point of the bundle: the fewest tokens "
        f"at which macro recall of validation is at most {100 * TOLERATED_LOSS:g} points lower than when "
        f"everything is read, and {1 - TOLERATED_SHARE:.0%} of what reading removes from the log loss is kept. "
        f"Another budget is set in predict, and its threshold comes from validation.{other}"
    )
    sentence = Text(f"The model {halting_sentence(curve, report.split)}.")
    return Section("Tokens read", [sentence, Text(text, soft=True), _table(curve)])


def _table(curve: TokensCurve) -> Table:
    """Return a row for each budget (a limit on the fraction of tokens read), the operating point and all tokens."""
    validation = curve.splits["validation"]
    knee = validation.index(curve.point("validation"))
    within = {max((i for i, point in enumerate(validation) if point.tokens <= budget), default=0) for budget in BUDGETS}
    shown = sorted({*within, knee, len(validation) - 1})
    columns: dict[str, str] = {"budget": "text"}
    for split in curve.splits:
        columns |= {f"tokens, {split}": "number", f"macro recall, {split}": "number", f"accuracy, {split}": "number"}
    rows = []
    for index in shown:
        budget = math.ceil(1e4 * validation[index].tokens) / 1e4  # rounded up, so that the point is within the budget
        name = f"{min(1.0, budget):g}"
        cells: list[object] = [f"{name} (the bundle's)" if index == knee else name]
        for points in curve.splits.values():
            point = points[index]
            cells += [percent(point.tokens), score(point.recall), score(point.accuracy)]
        rows.append(cells)
    return Table(columns, rows, strong=shown.index(knee), caption="Scores by share of tokens read")
