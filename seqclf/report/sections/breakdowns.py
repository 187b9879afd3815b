"""The sections of a report that break its scores down by class, by number of tokens and by period."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.documents.blocks import Picture, Section, Table
from seqclf.documents.formatting import number, score, shortened
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.over_time import PeriodScores
from seqclf.evaluation.run_result import RunResult
from seqclf.evaluation.slices import SliceMetrics
from seqclf.report.figures import scores_over_time
from seqclf.report.report import Report
from seqclf.report.score_table import interval_cell, score_columns

FEW_ROWS = 8  # rows of the short table, which is shown if the table of all classes is folded


def classes_section(report: Report) -> Section:
    """Return a table with one row for each class. The class with the lowest recall comes first."""
    metrics = report.metrics
    intervals = {} if metrics.intervals is None else metrics.intervals.recall_by_class
    recall = metrics.recall_by_class
    by_recall = sorted(
        report.classes, key=lambda label: (recall[label] is None, recall[label])
    )  # classes without a recall come last
    rows = [
        [
            shortened(label, 40),
            recall[label] or 0.0,
            score(recall[label]),
            interval_cell(intervals.get(label)),
            number(metrics.support_by_class[label]),
            score(metrics.precision_by_class[label]),
            score(metrics.f1_by_class[label]),
        ]
        for label in by_recall
    ]
    # The most important columns come first, because a phone cuts off the last columns.
    numbers = score_columns(["recall", "between", "rows", "precision", "F1"])
    caption = f"Scores of each class on {report.split}, the lowest recall first"
    columns = {"class": "text", " ": "bar", **numbers}
    title = f"All {len(rows):,} classes"
    table = Table(columns, rows, folded=title, caption=caption)
    lowest = Table(columns, rows[:FEW_ROWS], caption=f"The {FEW_ROWS} classes of the lowest recall on {report.split}")
    return Section("Recall by class", [lowest if table.is_folded else None, table])


def lengths_section(report: Report) -> Section:
    """Return a table with one row for each range of lengths, and one row for truncated sequences."""
    return Section("By length", [length_table(report.result)])


def length_table(result: RunResult) -> Table:
    """Return a table of the scores on the last split, with one row for each range of sequence lengths."""
    metrics, positive = result.metrics, result.positive
    slices: list[tuple[str, SliceMetrics]] = [
        (f"{part.low:,}" if part.low == part.high else f"{part.low:,} to {part.high:,}", part)
        for part in metrics.by_length
    ]
    if metrics.truncated is not None:
        slices.append(("truncated", metrics.truncated))
    label = None if positive is None else shortened(positive, 20)
    names, counts = ["recall", "accuracy", "f1"], ["rows"]
    if positive is not None:
        names, counts = ["recall", "precision", "average_precision"], ["rows", f"rows of {label}"]
    rows = [[title, *_cells(part, names)] for title, part in slices]
    headings = [metric_title(name, label) for name in names] + counts
    columns = {"tokens": "text", " ": "bar", **dict.fromkeys(headings, "number")}
    return Table(columns, rows, caption=f"Scores on {result.split} by number of tokens, before truncation")


def _cells(part: SliceMetrics, names: list[str]) -> list[object]:
    block = part if part.positive is None else part.positive
    sizes = [part.rows] if part.positive is None else [part.rows, part.positive.rows]
    scores = [score(getattr(block, name)) for name in names]
    return [block.recall or 0.0, *scores, *map(number, sizes)]


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
