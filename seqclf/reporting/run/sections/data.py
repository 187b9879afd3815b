"""Warnings of a report about the data."""

from __future__ import annotations

from typing import ClassVar

from seqclf.reporting.formatting import warning_lines
from seqclf.reporting.html import Section
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.report_section import ReportSection

MAX_WARNINGS = 50


class DataSection(ReportSection):
    """Warnings about the data."""

    position: ClassVar[float] = 90

    def build(self, report: Report) -> Section:
        """Return the warnings of the survey, or the refused rows of an evaluation."""
        return Section("run/data.html", {"warnings": warning_lines(report.warnings, MAX_WARNINGS)})
