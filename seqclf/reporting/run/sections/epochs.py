"""Epochs of a report: learning curves and a table with a row for each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from seqclf.reporting.formatting import head_and_tail, score, shortened
from seqclf.reporting.html import Section, Table
from seqclf.reporting.run.figures import learning_curves
from seqclf.reporting.run.report import MAX_ROWS, Report
from seqclf.reporting.run.report_section import ReportSection
from seqclf.reporting.svg import picture


class EpochsSection(ReportSection):
    """Learning curves and a table of the epochs."""

    position: ClassVar[float] = 30

    def build(self, report: Report) -> Section | None:
        """Return curves of loss, recall and the monitored metric. None for an evaluation, which has no epochs."""
        if not report.history:
            return None
        assert report.config is not None, "a report with epochs is of a training run"
        monitor = report.config["monitor"]
        # Without duplicates, as loss or recall may be the monitored metric.
        curves = list(dict.fromkeys(["loss", "recall", monitor]))
        figure = picture(
            lambda width_in: learning_curves(report.history, curves, report.best_epoch, width_in),
            f"{', '.join(curves)} of training and validation by epoch".replace("_", " "),
        )
        table = _epoch_table(report, list(dict.fromkeys(["loss", "accuracy", "recall", monitor])))
        return Section("run/epochs.html", {"picture": figure, "table": table})


def _epoch_table(report: Report, metrics: Sequence[str]) -> Table:
    rows = [
        [
            row["epoch"],
            *(score(row.get(f"validation/{name}")) for name in metrics),
            shortened(row.get("observation", ""), 160),
        ]
        for row in report.history
    ]
    first, omitted, last = head_and_tail(rows, MAX_ROWS)
    # The first column is narrow, so the line for the omitted epochs stands in the last one.
    gap = [["", *("" for _ in metrics), f"… {omitted:,} more epochs"]] if omitted else []
    visible = [*first, *gap, *last]
    # The exported epoch may be among the omitted rows.
    best = next((index for index, row in enumerate(visible) if row[0] == report.best_epoch), None)
    numbers = dict.fromkeys((name.replace("_", " ") for name in metrics), "number")
    columns = {"epoch": "number", **numbers, "observation": "text"}
    return Table(columns, visible, strong=best, folded="Every epoch")
