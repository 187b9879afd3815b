"""The verdict section of a report: alarms, comparison with the order-blind baseline, and scores of the model."""

from __future__ import annotations

from seqclf.documents.blocks import Section
from seqclf.report.report import Report
from seqclf.report.score_table import verdict_blocks
from seqclf.report.section import ReportSection


class VerdictSection(ReportSection):
    """Alarms, comparison with the baseline, and score table. The verdict sentences are at the top of the page."""

    def build(self, report: Report) -> Section:
        """Return the alarms, the comparison with the baseline and the score table."""
        return Section("Verdict", verdict_blocks(report.result))
