"""Epochs of a report: learning curves and a table with a row for each epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from seqclf.documents.figures import picture
from seqclf.documents.formatting import head_and_tail, score, shortened
from seqclf.documents.html import Section, Table
from seqclf.evaluation.metrics import metric_title
from seqclf.report.figures import learning_curves
from seqclf.report.report import MAX_ROWS, Report
from seqclf.report.section import ReportSection

MAX_OPEN_ROWS = 10  # rows; a table of more epochs is folded


class EpochsSection(ReportSection):
    """Learning curves and a table of the epochs."""

    position: ClassVar[float] = 30

    def build(self, report: Report) -> Section | None:
        """Return curves of loss, macro recall and the monitored metric. None for an evaluation, which has no epochs."""
        if not report.history:
            return None
        assert report.config is not None, "a report with epochs is of a training run"
        monitor = report.config["monitor"]
        # Without duplicates, as loss or recall may be the monitored metric.
        curves = list(dict.fromkeys(["loss", "recall", monitor]))
        figure = picture(
            lambda width_in: learning_curves(report.history, curves, report.best_epoch, width_in),
            f"{', '.join(map(metric_title, curves))} of training and validation by epoch, numbers in the table below",
        )
        metrics = list(dict.fromkeys(["loss", "accuracy", "recall", monitor]))
        table = _epoch_table(report, metrics)
        notable = _notable_epochs(report, metrics) if table.is_folded else None
        context = {
            "picture": figure,
            "table": table,
            "notable": notable,
            "monitor": metric_title(monitor),
            "has_tie": _has_tie(report, monitor),
        }
        return Section("run/epochs.html", context)


def _has_tie(report: Report, monitor: str) -> bool:
    """Return True if another epoch reached the monitored score of the exported one."""
    scores = {row["epoch"]: row.get(f"validation/{monitor}") for row in report.history}
    best = scores.get(report.best_epoch)
    return best is not None and list(scores.values()).count(best) > 1


def _columns(metrics: Sequence[str]) -> dict[str, str]:
    numbers = dict.fromkeys(map(metric_title, metrics), "number")
    return {"epoch": "number", **numbers, "observation": "text"}


def _row(row: Mapping[str, Any], best: int | None, metrics: Sequence[str]) -> list[object]:
    """Cells of one epoch, which counts from 1 here."""
    observation = shortened(row.get("observation", ""), 160)
    if row["epoch"] == best:
        observation = "; ".join(filter(None, ["exported", observation]))
    scores = (score(row.get(f"validation/{name}")) for name in metrics)
    return [row["epoch"] + 1, *scores, observation]


def _notable_epochs(report: Report, metrics: Sequence[str]) -> Table:
    """Table of the first, the exported and the last epoch."""
    notable = {report.history[0]["epoch"], report.best_epoch, report.history[-1]["epoch"]}
    shown = [row for row in report.history if row["epoch"] in notable]
    best = next((index for index, row in enumerate(shown) if row["epoch"] == report.best_epoch), None)
    rows = [_row(row, report.best_epoch, metrics) for row in shown]
    return Table(
        _columns(metrics), rows, strong=best, caption="Scores on validation after the first, best and last epoch"
    )


def _epoch_table(report: Report, metrics: Sequence[str]) -> Table:
    history = report.history
    first, omitted, last = head_and_tail(range(len(history)), MAX_ROWS)
    shown = [*first, *last]
    rows = [_row(history[index], report.best_epoch, metrics) for index in shown]
    # The exported epoch may be among the omitted rows.
    best = next((row for row, index in enumerate(shown) if history[index]["epoch"] == report.best_epoch), None)
    if omitted:
        # The first column is narrow, so the line for the omitted epochs stands in the last one.
        rows.insert(len(first), ["", *("" for _ in metrics), f"… {omitted:,} more epochs"])
        best = None if best is None else best + (best >= len(first))
    title = f"Every epoch ({len(history):,})"
    caption = "Scores on validation after each epoch"
    return Table(_columns(metrics), rows, strong=best, folded=title, caption=caption, longest=MAX_OPEN_ROWS)
