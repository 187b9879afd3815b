"""Classes of a report: recall, precision and F1 of each."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.formatting import number, score, shortened
from seqclf.documents.html import Section, Table, bar, limited_rows
from seqclf.report.report import MAX_ROWS, Report
from seqclf.report.score_table import interval_cell, score_columns
from seqclf.report.section import ReportSection

FEW_ROWS = 8  # shown where the table of all classes is folded


class ClassesSection(ReportSection):
    """Scores of each class."""

    position: ClassVar[float] = 50

    def build(self, report: Report) -> Section:
        """Return a row for each class, the lowest recall first."""
        metrics = report.metrics
        intervals = {} if metrics.intervals is None else metrics.intervals.recall_by_class
        recall = metrics.recall_by_class
        by_recall = sorted(
            report.classes, key=lambda label: (recall[label] is None, recall[label])
        )  # unknown ones last
        rows = [
            [
                shortened(label, 40),
                bar(recall[label] or 0.0),
                score(recall[label]),
                interval_cell(intervals.get(label)),
                number(metrics.support_by_class[label]),
                score(metrics.precision_by_class[label]),
                score(metrics.f1_by_class[label]),
            ]
            for label in by_recall
        ]
        # Most important first: on a phone the last ones are out of sight.
        numbers = score_columns(["recall", "between", "rows", "precision", "F1"])
        caption = f"Scores of each class on {report.split}, the lowest recall first"
        columns = {"class": "text", " ": "bar", **numbers}
        title = f"All {len(rows):,} classes"
        table = Table(columns, limited_rows(rows, MAX_ROWS), folded=title, caption=caption)
        lowest = Table(
            columns, rows[:FEW_ROWS], caption=f"The {FEW_ROWS} classes of the lowest recall on {report.split}"
        )
        context = {"table": table, "lowest": lowest if table.is_folded else None}
        return Section("run/classes.html", context)
