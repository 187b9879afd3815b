"""The section of classes in a report: recall, precision and F1 of each class."""

from __future__ import annotations

from seqclf.documents.blocks import Section, Table
from seqclf.documents.formatting import number, score, shortened
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
