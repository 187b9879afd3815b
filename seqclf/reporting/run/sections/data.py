"""Warnings of a report about the data."""

from __future__ import annotations

from seqclf.reporting.formatting import warning_lines
from seqclf.reporting.html import Section
from seqclf.reporting.run.report import Report

MAX_WARNINGS = 50


def data_section(report: Report) -> Section:
    """Return the warnings of the survey, or the refused rows of an evaluation."""
    return Section("run/data.html", {"warnings": warning_lines(report.warnings, MAX_WARNINGS)})
