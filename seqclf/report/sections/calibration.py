"""Calibration of a report: expected and observed counts by probability, and the effect of temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqclf.documents.formatting import number, percent, shortened
from seqclf.documents.html import Section, Table
from seqclf.evaluation.calibration import calibration_error_by_chance
from seqclf.evaluation.intervals import interval_text
from seqclf.report.figures import CURVE_IN, reliability
from seqclf.report.reliability import ReliabilityBin, reliability_bins
from seqclf.report.report import Report
from seqclf.report.score_table import score_columns
from seqclf.report.section import ReportSection

BIAS = {1: "too high", -1: "too low", 0: "right"}


class CalibrationSection(ReportSection):
    """Calibration error, reliability diagram, and counts by probability."""

    position: ClassVar[float] = 70

    def build(self, report: Report) -> Section:
        """Return the bins of the positive label, or of the most probable class where no label is positive."""
        index, probabilities = report.positive_index, report.evaluation.probabilities
        if index is None:
            happened, probability = report.labels == probabilities.argmax(axis=1), probabilities.max(axis=1)
        else:
            happened, probability = report.labels == index, probabilities[:, index]
        bins = reliability_bins(happened, probability)
        calibration = report.result.calibration
        event = "right" if report.positive is None else shortened(report.positive, 20)
        context = {
            "positive": report.positive,
            "ece": report.metrics.ece,
            "by_chance": calibration_error_by_chance(probabilities),
            "calibration": calibration,
            "errors": None if calibration is None else calibration.ece[report.split],
            "diagram": reliability(bins, CURVE_IN),
            "table": _table(bins, event, report.split),
            "biased": sum(part.bias != 0 for part in bins),
            "bins": len(bins),
        }
        return Section("run/calibration.html", context)


def _table(bins: Sequence[ReliabilityBin], event: str, split: str) -> Table:
    rows = [
        [
            _range(part.low, part.high),
            BIAS[part.bias],
            percent(part.share),
            _range(part.share_low, part.share_high),
            number(part.rows),
            number(round(part.expected, 1)),
            number(part.observed),
        ]
        for part in bins
    ]
    # Most important first: on a phone the last ones are out of sight.
    columns = score_columns(["observed share", "between", "rows", f"expected {event}", f"observed {event}"])
    caption = f"Rows of {split} by predicted probability"
    return Table({"probability": "text", "it is": "text", **columns}, rows, caption=caption)


def _range(low: float, high: float) -> str:
    return interval_text((low, high), percent, to=" to\N{NO-BREAK SPACE}")
