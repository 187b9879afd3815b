"""Metrics of a report by the length of the sequences."""

from __future__ import annotations

from typing import ClassVar

from seqclf.documents.formatting import number, score, shortened
from seqclf.documents.html import Section, Table, bar
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.slices import SliceMetrics
from seqclf.report.report import Report
from seqclf.report.section import ReportSection


class LengthsSection(ReportSection):
    """Scores by the length of the sequences."""

    position: ClassVar[float] = 60

    def build(self, report: Report) -> Section:
        """Return a row for each range of lengths, and one for the truncated rows."""
        metrics = report.metrics
        slices: list[tuple[str, SliceMetrics]] = [
            (f"{part.low:,}" if part.low == part.high else f"{part.low:,} to {part.high:,}", part)
            for part in metrics.by_length
        ]
        if metrics.truncated is not None:
            slices.append(("truncated", metrics.truncated))
        if report.positive is None:
            names, counts = ["recall", "accuracy", "f1"], ["rows"]
        else:
            names, counts = (
                ["recall", "precision", "average_precision"],
                ["rows", f"rows of {shortened(report.positive, 20)}"],
            )
        rows = [[title, *_cells(part, names)] for title, part in slices]
        label = None if report.positive is None else shortened(report.positive, 20)
        headings = [metric_title(name, label) for name in names] + counts
        columns = {"tokens": "text", " ": "bar", **dict.fromkeys(headings, "number")}
        table = Table(columns, rows, caption=f"Scores on {report.split} by number of tokens, before truncation")
        return Section("run/table.html", {"heading": "By length", "text": None, "table": table})


def _cells(part: SliceMetrics, names: list[str]) -> list[object]:
    block = part if part.positive is None else part.positive
    sizes = [part.rows] if part.positive is None else [part.rows, part.positive.rows]
    scores = [score(getattr(block, name)) for name in names]
    return [bar(block.recall or 0.0), *scores, *map(number, sizes)]
