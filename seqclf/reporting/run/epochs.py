"""Epochs in a report: learning curves and the table of all epochs."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.reporting import html
from seqclf.reporting.formatting import head_and_tail, score, shortened
from seqclf.reporting.html import Html
from seqclf.reporting.run.figures import learning_curves
from seqclf.reporting.run.report import Report

NARROW_IN, BROAD_IN = 4.2, 8.6
MOST_ROWS = 60
LONG_TABLE = 25  # rows from which on a table is folded


def epochs_section(report: Report) -> Html:
    """Learning curves of loss, recall and the monitored metric, and a row per epoch."""
    assert report.config is not None, "a report with epochs is of a training run"
    monitor = report.config["monitor"]
    # Without duplicates, as loss or recall may be the monitored metric.
    curves = list(dict.fromkeys(["loss", "recall", monitor]))
    figure = html.picture(
        learning_curves(report.history, curves, report.best_epoch, NARROW_IN),
        learning_curves(report.history, curves, report.best_epoch, BROAD_IN),
        f"{', '.join(curves)} of training and validation by epoch".replace("_", " "),
    )
    table = _table(report, list(dict.fromkeys(["loss", "accuracy", "recall", monitor])))
    explanation = "Validation in colour, training in grey. The dashed line is the epoch that was exported."
    return html.section(
        "Epochs",
        html.paragraph(explanation, soft=True),
        figure,
        html.folded("Every epoch", table) if len(report.history) > LONG_TABLE else table,
    )


def _table(report: Report, metrics: Sequence[str]) -> Html:
    rows = [
        [
            row["epoch"],
            *(score(row.get(f"validation/{name}")) for name in metrics),
            shortened(row.get("observation", ""), 160),
        ]
        for row in report.history
    ]
    first, omitted, last = head_and_tail(rows, MOST_ROWS)
    gap = [["", *("" for _ in metrics), f"… {omitted:,} more epochs"]] if omitted else []
    visible = [*first, *gap, *last]
    # The exported epoch may be among the omitted rows.
    best = next((index for index, row in enumerate(visible) if row[0] == report.best_epoch), None)
    numbers = dict.fromkeys((name.replace("_", " ") for name in metrics), "number")
    return html.table({"epoch": "number", **numbers, "observation": "text"}, visible, strong=best)
