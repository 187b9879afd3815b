"""Worst mistakes of a report: wrong rows with the lowest probability of their true label."""

from __future__ import annotations

from typing import ClassVar

from seqclf.reporting.formatting import number, percent, shortened
from seqclf.reporting.html import Section, Table
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.report_section import ReportSection

COLUMNS = {
    "id": "text",
    "is": "text",
    "predicted as": "text",
    "probability of its label": "number",
    "tokens": "number",
    "sequence": "text",
}


class MistakesSection(ReportSection):
    """Worst mistakes."""

    position: ClassVar[float] = 80

    def build(self, report: Report) -> Section:
        """Return a row for each mistake, the lowest probability first."""
        rows = [
            [
                shortened(mistake.id, 30),
                shortened(mistake.label, 30),
                shortened(mistake.predicted, 30),
                percent(mistake.probability),
                number(mistake.length),
                shortened(mistake.tokens, 600),
            ]
            for mistake in report.mistakes
        ]
        return Section("run/mistakes.html", {"split": report.split, "table": Table(COLUMNS, rows, stacked=True)})
