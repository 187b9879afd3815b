"""Classes of a report: recall, precision and F1 of each."""

from __future__ import annotations

from typing import ClassVar

from seqclf.reporting.formatting import number, score, shortened
from seqclf.reporting.html import Section, Table, bar, limited_rows
from seqclf.reporting.run.report import MAX_ROWS, Report
from seqclf.reporting.run.report_section import ReportSection
from seqclf.reporting.run.summary import interval_text


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
                score(metrics.precision_by_class[label]),
                score(metrics.f1_by_class[label]),
                interval_text(intervals.get(label)),
                number(metrics.support_by_class[label]),
            ]
            for label in by_recall
        ]
        numbers = dict.fromkeys(("recall", "precision", "f1", "recall between", "rows"), "number")
        table = Table({"class": "text", " ": "bar", **numbers}, limited_rows(rows, MAX_ROWS), folded="All")
        return Section("run/table.html", {"heading": "Recall by class", "text": None, "table": table})
