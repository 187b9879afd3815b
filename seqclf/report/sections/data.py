"""The data section of a report: sizes and classes of the splits, and warnings about the data."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from seqclf.documents.blocks import Alerts, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, percent, shortened, warning_lines
from seqclf.evaluation.results import SplitOutputs
from seqclf.report.report import Report
from seqclf.report.section import ReportSection

MAX_WARNINGS = 50
MAX_CLASSES = 5  # maximum number of classes that each have their own column


class DataSection(ReportSection):
    """Sizes of the splits, and warnings about the data."""

    position: ClassVar[float] = 90

    def build(self, report: Report) -> Section:
        """Return a table with one row for each split, and the warnings about the data."""
        warnings = warning_lines(report.warnings, MAX_WARNINGS)
        holdout_rows = report.result.holdout_rows
        text = (
            f"The {number(holdout_rows)} validation rows for the threshold set it and did nothing else. No score "
            "counts them."
        )
        return Section(
            "Data",
            [
                _split_table(report),
                Text(text, soft=True) if holdout_rows else None,
                Alerts(warnings) if warnings else Text("Nothing about the data stood out."),
            ],
        )


def _split_table(report: Report) -> Table:
    shown = report.classes if len(report.classes) <= MAX_CLASSES else []
    if shown:
        class_columns = {shortened(label, 24): "number" for label in shown}
    else:
        class_columns = {"smallest class": "text", "largest class": "text"}
    numbers = dict.fromkeys(("rows", "refused", "truncated", "tokens", "tokens a row"), "number")
    columns = {"split": "text", **numbers, **class_columns}
    rows = []
    for split, outputs in report.evaluation.outputs.items():
        counts = np.bincount(outputs.labels, minlength=len(report.classes))
        refused = number(report.result.data[split].refused) if split in report.result.data else NO_VALUE
        rows.append([split, number(len(outputs.labels)), refused, *_lengths(outputs), *_classes(counts, report, shown)])
        if split == "validation" and report.result.holdout_rows:
            cells = ["validation, for the threshold", number(report.result.holdout_rows)]
            rows.append([*cells, *[NO_VALUE] * (len(columns) - len(cells))])
    return Table(columns, rows, caption="Rows, tokens before truncation (smallest, median and largest), and classes")


def _lengths(outputs: SplitOutputs) -> list[str]:
    """Return three table cells: truncated rows, all tokens, and row lengths.

    The last cell has the smallest, the median and the largest length.
    """
    lengths = outputs.lengths
    if not len(lengths):
        return ["0", "0", NO_VALUE]
    spread = (lengths.min(), np.median(lengths), lengths.max())
    return [number(int(outputs.truncated.sum())), number(int(lengths.sum())), " / ".join(map(number, spread))]


def _classes(counts: np.ndarray, report: Report, shown: list[str]) -> list[str]:
    """Return the row count and the fraction of each class in `shown`.

    If `shown` is empty, return the numbers of the smallest and the largest class.
    """
    total = max(1, int(counts.sum()))
    if shown:
        return [f"{number(int(count))} ({percent(count / total)})" for count in counts]
    ends = (int(counts.argmin()), int(counts.argmax()))
    return [
        f"{shortened(report.classes[code], 40)}: {counts[code]:,} ({percent(counts[code] / total)})" for code in ends
    ]
