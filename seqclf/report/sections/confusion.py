"""Confusion matrix of a report, or a list of the largest errors where there are many classes."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np

from seqclf.documents.formatting import percent, shortened
from seqclf.documents.html import Section, Table
from seqclf.report.report import Report
from seqclf.report.section import ReportSection

MAX_CLASSES = 12  # of a matrix that fits a phone
MAX_ERRORS = 25


class MatrixRow(NamedTuple):
    """Rows of one true class by predicted class: a count, and its share of the class in percent."""

    label: str
    cells: list[tuple[int, int]]


class ConfusionSection(ReportSection):
    """Confusion matrix."""

    position: ClassVar[float] = 40

    def build(self, report: Report) -> Section:
        """Return the matrix, or the largest errors of more than `MAX_CLASSES` classes."""
        matrix = np.array(report.metrics.confusion)
        if len(report.classes) > MAX_CLASSES:
            table = _largest_errors(matrix, report.classes, report.split)
            return Section("run/table.html", {"heading": "Largest confusions", "text": None, "table": table})
        rows = [MatrixRow(label, _cells(counts.tolist())) for label, counts in zip(report.classes, matrix, strict=True)]
        context = {"classes": report.classes, "rows": rows, "split": report.split}
        return Section("run/confusion.html", context)


def _cells(counts: list[int]) -> list[tuple[int, int]]:
    """Return counts with shares of their row. Shares of all rows would hide the errors of rare classes."""
    total = max(1, sum(counts))
    return [(count, round(100 * count / total)) for count in counts]


def _largest_errors(matrix: np.ndarray, classes: list[str], split: str) -> Table:
    errors = [
        (int(matrix[truth, predicted]), classes[truth], classes[predicted])
        for truth, predicted in zip(*np.nonzero(matrix), strict=True)
        if truth != predicted
    ]
    largest = sorted(errors, reverse=True)[:MAX_ERRORS]
    support = dict(zip(classes, matrix.sum(axis=1).tolist(), strict=True))
    rows = [
        [shortened(truth, 40), shortened(predicted, 40), f"{count:,}", percent(count / support[truth])]
        for count, truth, predicted in largest
    ]
    caption = f"Most frequent wrong predictions on {split}"
    return Table(
        {"is": "text", "predicted as": "text", "rows": "number", "of its class": "number"}, rows, caption=caption
    )
