"""The section of periods in a report: scores by day, week, month or year."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.documents.blocks import Picture, Section, Table
from seqclf.documents.formatting import number, score, shortened
from seqclf.evaluation.over_time import PeriodScores
from seqclf.report.figures import scores_over_time
from seqclf.report.report import Report


def periods_section(report: Report) -> Section | None:
    """Return a picture and a table of the scores by period, None without periods."""
    if not report.periods:
        return None
    label = None if report.positive is None else shortened(report.positive, 20)
    figure = Picture(scores_over_time(report.periods, label), "scores by period, numbers in the table below")
    return Section("Over time", [figure, period_table(report.periods, label)])


def period_table(periods: Sequence[PeriodScores], label: str | None) -> Table:
    """Return a table with one row for each period. `label`: the positive label, None without one."""
    recall, mean = ("macro recall", "mean probability") if label is None else (f"recall of {label}", f"P({label})")
    columns = {"period": "text", "rows": "number", recall: "number", "accuracy": "number", mean: "number"}
    rows: list[list[object]] = [
        [part.period, number(part.rows), score(part.recall), score(part.accuracy), score(part.mean_score)]
        for part in periods
    ]
    if label is not None:
        columns[f"share of {label}"] = "number"
        rows = [[*row, score(part.share)] for row, part in zip(rows, periods, strict=True)]
    return Table(columns, rows, folded=f"Every period ({len(rows):,})", caption="Scores by period")
