"""Data of a report: sizes and classes of the splits, and warnings."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from seqclf.documents.formatting import NO_VALUE, number, percent, shortened, warning_lines
from seqclf.documents.html import Section, Table
from seqclf.evaluation.results import SplitOutputs
from seqclf.report.report import Report
from seqclf.report.section import ReportSection

MAX_WARNINGS = 50
MAX_CLASSES = 5  # with a column each


class DataSection(ReportSection):
    """Sizes of the splits, and warnings about the data."""

    position: ClassVar[float] = 90

    def build(self, report: Report) -> Section:
        """Return a row for each split, and the warnings of the survey, or the refused rows of an evaluation."""
        context = {
            "warnings": warning_lines(report.warnings, MAX_WARNINGS),
            "splits": _split_table(report),
            "holdout_rows": report.result.holdout_rows,
        }
        return Section("run/data.html", context)


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
    """Truncated rows, all tokens, and the smallest, median and largest number of tokens."""
    lengths = outputs.lengths
    if not len(lengths):
        return ["0", "0", NO_VALUE]
    spread = (lengths.min(), np.median(lengths), lengths.max())
    return [number(int(outputs.truncated.sum())), number(int(lengths.sum())), " / ".join(map(number, spread))]


def _classes(counts: np.ndarray, report: Report, shown: list[str]) -> list[str]:
    """Rows of each class with their share, or of the smallest and the largest class."""
    total = max(1, int(counts.sum()))
    if shown:
        return [f"{number(int(count))} ({percent(count / total)})" for count in counts]
    ends = (int(counts.argmin()), int(counts.argmax()))
    return [
        f"{shortened(report.classes[code], 40)}: {counts[code]:,} ({percent(counts[code] / total)})" for code in ends
    ]
