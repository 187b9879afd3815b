"""Calibration of a report: the calibration error before and after temperature scaling, and a reliability diagram."""

from __future__ import annotations

from typing import ClassVar

from seqclf.reporting.html import Section
from seqclf.reporting.run.figures import CURVE_IN, reliability
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.report_section import ReportSection


class CalibrationSection(ReportSection):
    """Calibration error and reliability diagram."""

    position: ClassVar[float] = 70

    def build(self, report: Report) -> Section:
        """Return the diagram of the positive label, or of the most probable class where no label is positive."""
        index, probabilities = report.positive_index, report.evaluation.probabilities
        if index is None:
            is_right, confidence = report.labels == probabilities.argmax(axis=1), probabilities.max(axis=1)
        else:
            is_right, confidence = report.labels == index, probabilities[:, index]
        calibration = report.calibration
        context = {
            "positive": report.positive,
            "ece": report.metrics.ece,
            "calibration": calibration,
            "errors": None if calibration is None else calibration.ece[report.split],
            "diagram": reliability(is_right, confidence, CURVE_IN),
        }
        return Section("run/calibration.html", context)
