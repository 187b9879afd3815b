"""The confusion section: the confusion matrix, or the most frequent confusions if there are many classes."""

from __future__ import annotations

import numpy as np

from seqclf.documents.blocks import HeatMap, Section, Table, Text
from seqclf.documents.formatting import number, percent, shortened
from seqclf.report.report import Report

MAX_CLASSES = 12  # maximum number of classes; a larger matrix does not fit a phone
MAX_ERRORS = 25


def confusion_section(report: Report) -> Section:
    """Return the confusion matrix, or the most frequent confusions if there are more than `MAX_CLASSES` classes."""
    matrix = np.array(report.metrics.confusion)
    if len(report.classes) > MAX_CLASSES:
        table = _largest_errors(matrix, report.classes, report.split)
        return Section("Largest confusions", [table])
    labels = [shortened(label, 24) for label in report.classes]
    rows = [(label, _cells(counts)) for label, counts in zip(labels, matrix.tolist(), strict=True)]
    text = (
        f"Rows of {report.split}: true classes by row, predicted ones by column. A stronger colour is a larger "
        "share of the row."
    )
    return Section("Confusion", [Text(text, soft=True), HeatMap("true class", labels, rows)])


def _cells(counts: list[int]) -> list[tuple[str, float]]:
    """The colour shows the fraction of the rows of a class; one of all rows would hide errors of rare classes."""
    total = max(1, sum(counts))
    return [(number(count), count / total) for count in counts]


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
