"""Scores and counts by class, by pairs of classes, by number of tokens and by period."""

from __future__ import annotations

import numpy as np

from seqclf.documents.blocks import HeatMap, Picture, Section, Table, Text
from seqclf.documents.formatting import number, percent, score, shortened
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.slices import Slice
from seqclf.report.charts import period_recall, period_share, scores_over_time
from seqclf.report.reported import Reported
from seqclf.report.score_tables import interval_cell, score_columns

MAX_CLASSES = 12  # maximum number of classes; a larger matrix does not fit a phone
MAX_ERRORS = 25
FEW_ROWS = 8  # rows of the short table, which is shown if the table of all classes is folded


def classes_section(reported: Reported) -> Section:
    """Return a table with one row for each class. The class with the lowest recall comes first."""
    metrics = reported.metrics
    intervals = {} if metrics.intervals is None else metrics.intervals.recall_by_class
    recall = metrics.recall_by_class
    by_recall = sorted(
        reported.result.classes, key=lambda label: (recall[label] is None, recall[label])
    )  # classes without a recall come last
    rows = [
        [
            shortened(label, 40),
            recall[label] or 0.0,
            score(recall[label]),
            interval_cell(intervals.get(label)),
            number(metrics.support_by_class[label]),
            score(metrics.precision_by_class[label]),
            score(metrics.f1_by_class[label]),
        ]
        for label in by_recall
    ]
    # The most important columns come first, because a phone cuts off the last columns.
    numbers = score_columns(["recall", "between", "rows", "precision", "F1"])
    caption = f"Scores of each class on {reported.split}, the lowest recall first"
    columns = {"class": "text", " ": "bar", **numbers}
    title = f"All {len(rows):,} classes"
    table = Table(columns, rows, folded=title, caption=caption)
    lowest = Table(columns, rows[:FEW_ROWS], caption=f"The {FEW_ROWS} classes of the lowest recall on {reported.split}")
    return Section("Recall by class", [lowest if table.is_folded else None, table])


def lengths_section(reported: Reported) -> Section | None:
    """Return a table with one row for each range of lengths, and one row for truncated sequences."""
    if not reported.result.splits:
        return None
    metrics, positive = reported.metrics, reported.result.positive
    slices = [*metrics.by_length, *([] if metrics.truncated is None else [metrics.truncated])]
    label = None if positive is None else shortened(positive, 20)
    names, counts = ["recall", "accuracy", "f1"], ["rows"]
    if positive is not None:
        names, counts = ["recall", "precision", "average_precision"], ["rows", f"rows of {label}"]
    headings = [metric_title(name, label) for name in names] + counts
    columns = {"tokens": "text", " ": "bar", **dict.fromkeys(headings, "number")}
    caption = f"Scores on {reported.split} by number of tokens, before truncation"
    return Section(
        "By length", [Table(columns, [[part.title, *_cells(part, names)] for part in slices], caption=caption)]
    )


def _cells(part: Slice, names: list[str]) -> list[object]:
    block = part if part.positive is None else part.positive
    sizes = [part.rows] if part.positive is None else [part.rows, part.positive.rows]
    scores = [score(getattr(block, name)) for name in names]
    return [block.recall or 0.0, *scores, *map(number, sizes)]


def periods_section(reported: Reported) -> Section | None:
    """Return a picture and a table of the scores by period, None without periods."""
    if (table := periods_table(reported)) is None:
        return None
    figure = Picture(
        scores_over_time(reported.periods, _positive(reported)), "scores by period, numbers in the table below"
    )
    return Section("Over time", [figure, *table.blocks])


def periods_table(reported: Reported) -> Section | None:
    """Return the table of `periods_section` alone, as the terminal shows no picture."""
    periods, label = reported.periods, _positive(reported)
    if not periods:
        return None
    recall, mean = ("macro recall", "mean probability") if label is None else (f"recall of {label}", f"P({label})")
    columns = {"period": "text", "rows": "number", recall: "number", "accuracy": "number", mean: "number"}
    rows: list[list[object]] = [
        [part.title, number(part.rows), score(period_recall(part)), score(part.accuracy), score(part.mean_score)]
        for part in periods
    ]
    if label is not None:
        columns[f"share of {label}"] = "number"
        rows = [[*row, score(period_share(part))] for row, part in zip(rows, periods, strict=True)]
    table = Table(columns, rows, folded=f"Every period ({len(rows):,})", caption="Scores by period")
    return Section("Over time", [table])


def _positive(reported: Reported) -> str | None:
    """Return the positive label as a heading shows it."""
    positive = reported.result.positive
    return None if positive is None else shortened(positive, 20)


def confusion_section(reported: Reported) -> Section:
    """Return the confusion matrix, or the most frequent confusions if there are more than `MAX_CLASSES` classes."""
    matrix = np.array(reported.metrics.confusion)
    if len(reported.result.classes) > MAX_CLASSES:
        table = _largest_errors(matrix, reported.result.classes, reported.split)
        return Section("Largest confusions", [table])
    labels = [shortened(label, 24) for label in reported.result.classes]
    rows = [(label, _heat_cells(counts)) for label, counts in zip(labels, matrix.tolist(), strict=True)]
    text = (
        f"Rows of {reported.split}: true classes by row, predicted ones by column. A stronger colour is a larger "
        "share of the row."
    )
    return Section("Confusion", [Text(text, soft=True), HeatMap("true class", labels, rows)])


def _heat_cells(counts: list[int]) -> list[tuple[str, float]]:
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
