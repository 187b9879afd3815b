"""Verdict of a report: alarms, the model against the order-blind baseline, and its scores."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.html import Section, Table
from seqclf.report.report import Report
from seqclf.report.score_table import between_note, comparison_rows, score_columns, score_table
from seqclf.report.section import ReportSection

COMPARISON_COLUMNS = {"": "text", **dict.fromkeys(("this model", "order-blind", "difference", "between"), "number")}


class VerdictSection(ReportSection):
    """Alarms, the comparison with the baseline, and the scores. The sentences of the verdict stand at the top."""

    position: ClassVar[float] = 10

    def build(self, report: Report) -> Section:
        """Return alarms first, so that no reader takes the good figures below them for the result."""
        metrics, baseline = report.metrics, report.result.baseline
        headings, rows = score_table(report.result)
        compared = [] if baseline is None else comparison_rows(baseline)
        context = {
            "alarms": [f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms],
            "comparison": Table(COMPARISON_COLUMNS, compared, strong=0, stacked=True) if compared else None,
            "counts": report.verdict.counts,
            "table": Table({"": "text", **score_columns(headings)}, rows, stacked=True),
            "interval_note": between_note(metrics),
        }
        return Section("run/verdict.html", context)
