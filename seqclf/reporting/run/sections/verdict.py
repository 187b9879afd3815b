"""Verdict of a report: alarms, what the decision guarantees, and the scores next to the baselines."""

from __future__ import annotations

from typing import ClassVar

from seqclf.reporting.guarantees import decision_lines
from seqclf.reporting.html import Section, Table
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.report_section import ReportSection
from seqclf.reporting.run.summary import BETWEEN, verdict_rows


class VerdictSection(ReportSection):
    """Alarms, guarantees, and scores next to the baselines."""

    position: ClassVar[float] = 10

    def build(self, report: Report) -> Section:
        """Return alarms first, so that no reader takes the good figures below them for the result."""
        metrics = report.metrics
        names, rows = verdict_rows(report.evaluation.metrics, report.baseline)
        context = {
            "alarms": [f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms],
            "decision": [
                f"{line[0].upper()}{line[1:]}."
                for line in decision_lines(report.evaluation.decision, metrics, report.split)
            ],
            "table": Table({"": "text", **dict.fromkeys(names, "number")}, rows, strong=0, stacked=True),
            "interval_note": None if metrics.intervals is None else BETWEEN,
        }
        return Section("run/verdict.html", context)
