"""Sections of a report on performance: confusion, classes, lengths, calibration and the worst mistakes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqclf.evaluation.slices import SliceMetrics
from seqclf.reporting import html
from seqclf.reporting.formatting import head_and_tail, number, percent, score, shortened
from seqclf.reporting.html import Html
from seqclf.reporting.run.epochs import LONG_TABLE, MOST_ROWS
from seqclf.reporting.run.figures import reliability
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.summary import interval_text

CURVE_IN = 5.0
MOST_CLASSES = 12  # of a confusion matrix; with more classes the largest errors are listed
MOST_ERRORS = 25


def confusion_section(report: Report) -> Html:
    """The confusion matrix, or the largest errors where there are many classes."""
    matrix = np.array(report.metrics.confusion)
    if len(report.classes) > MOST_CLASSES:
        return html.section("Largest confusions", _largest_errors(matrix, report.classes))
    head = "".join(f"<th scope='col'>{html.text(shortened(label, 14))}</th>" for label in report.classes)
    body = []
    for label, counts in zip(report.classes, matrix, strict=True):
        total = max(1, counts.sum())
        # Shares of the row and not of all rows: errors of rare classes stay visible.
        cells = "".join(f'<td class="cell" style="--share:{100 * n / total:.0f}%">{n:,}</td>' for n in counts)
        body.append(f"<tr><th scope='row'>{html.text(shortened(label, 20))}</th>{cells}</tr>")
    explanation = "Rows are true classes, columns predicted ones. Darker cells are larger shares of their row."
    content = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    table = Html(f'<div class="wide"><table>{content}</table></div>')
    return html.section("Confusion", html.paragraph(explanation, soft=True), table)


def _largest_errors(matrix: np.ndarray, classes: Sequence[str]) -> Html:
    errors = [
        (int(matrix[truth, predicted]), classes[truth], classes[predicted])
        for truth, predicted in zip(*np.nonzero(matrix), strict=True)
        if truth != predicted
    ]
    largest = sorted(errors, reverse=True)[:MOST_ERRORS]
    rows = [[shortened(truth, 40), shortened(predicted, 40), f"{count:,}"] for count, truth, predicted in largest]
    return html.table({"is": "text", "predicted as": "text", "rows": "number"}, rows)


def classes_section(report: Report) -> Html:
    """Recall, precision and F1 of each class, the lowest recall first."""
    metrics = report.metrics
    intervals = {} if metrics.intervals is None else metrics.intervals.recall_by_class
    recall = metrics.recall_by_class
    by_recall = sorted(report.classes, key=lambda label: (recall[label] is None, recall[label]))  # unknown ones last
    rows: list[Sequence[object]] = [
        [
            shortened(label, 40),
            html.bar(recall[label] or 0.0),
            score(recall[label]),
            score(metrics.precision_by_class[label]),
            score(metrics.f1_by_class[label]),
            interval_text(intervals.get(label)),
            number(metrics.support_by_class[label]),
        ]
        for label in by_recall
    ]
    first, omitted, last = head_and_tail(rows, MOST_ROWS)
    rows = [*first, *([[f"… {omitted:,} more"]] if omitted else []), *last]
    numbers = dict.fromkeys(("recall", "precision", "f1", "recall between", "rows"), "number")
    table = html.table({"class": "text", " ": "bar", **numbers}, rows)
    return html.section("Recall by class", html.folded("All", table) if len(rows) > LONG_TABLE else table)


def lengths_section(report: Report) -> Html:
    """Metrics by length, and of the truncated rows."""
    metrics = report.metrics
    slices: list[tuple[str, SliceMetrics]] = [(f"{part.low:,} to {part.high:,}", part) for part in metrics.by_length]
    if metrics.truncated is not None:
        slices.append(("truncated", metrics.truncated))
    if report.positive is None:
        names, counts, subject = ["recall", "accuracy", "f1"], ["rows"], ", mean over classes"
    else:
        names, counts = ["recall", "precision", "average_precision"], ["rows", "positive rows"]
        subject = f" of {shortened(report.positive, 30)}"
    rows = []
    for title, part in slices:
        block = part if part.positive is None else part.positive
        sizes = [number(part.rows), *([] if part.positive is None else [number(part.positive.rows)])]
        rows.append([title, html.bar(block.recall or 0.0), *(score(getattr(block, name)) for name in names), *sizes])
    headings = [name.replace("_", " ") for name in names] + counts
    return html.section(
        "By length",
        html.paragraph(f"Recall{subject}, and other metrics, by the length of the sequences.", soft=True),
        html.table({"tokens": "text", " ": "bar", **dict.fromkeys(headings, "number")}, rows),
    )


def calibration_section(report: Report) -> Html:
    """Calibration error before and after temperature scaling, and the reliability diagram."""
    index, probabilities = report.positive_index, report.evaluation.probabilities
    if index is None:
        is_right, confidence = report.labels == probabilities.argmax(axis=1), probabilities.max(axis=1)
        event = "the most probable class is right"
    else:
        is_right, confidence = report.labels == index, probabilities[:, index]
        event = f"a sequence is {shortened(report.positive, 40)}"
    explanation = f"How often {event}, by its predicted probability. On the diagonal the probabilities can be trusted."
    parts: list[object] = [html.paragraph(explanation, soft=True), html.paragraph(_calibration_errors(report))]
    figure = Html(f'<div class="plot">{reliability(is_right, confidence, CURVE_IN)}</div>')
    return html.section("Calibration", *parts, figure)


def _calibration_errors(report: Report) -> str:
    calibration = report.calibration
    if calibration is None:
        return f"Calibration error {percent(report.metrics.ece)}."
    errors = calibration.ece[report.split]
    status = "is applied" if calibration.applied else "would be applied by decision.calibrate=true"
    return (
        f"Calibration error {percent(errors.before)}. With the temperature {calibration.temperature:.2f}, fit on "
        f"validation, which {status}: {percent(errors.after)}."
    )


def mistakes_section(report: Report) -> Html:
    """The wrong rows with the lowest probability of their true label."""
    if not report.mistakes:
        return html.section("Worst errors", html.paragraph(f"Every row of {report.split} is right."))
    rows = [
        [
            shortened(mistake.id, 30),
            shortened(mistake.label, 30),
            shortened(mistake.predicted, 30),
            percent(mistake.probability),
            number(mistake.length),
            shortened(mistake.tokens, 600),
        ]
        for mistake in report.mistakes
    ]
    columns = {
        "id": "text",
        "is": "text",
        "predicted as": "text",
        "probability of its label": "number",
        "tokens": "number",
        "sequence": "text",
    }
    explanation = (
        f"Wrong rows of {report.split}, the lowest probability of the true label first. ? is an unknown value."
    )
    return html.section("Worst errors", html.paragraph(explanation, soft=True), html.table(columns, rows, stacked=True))
