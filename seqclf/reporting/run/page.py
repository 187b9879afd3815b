"""report.html: the verdict on a run or an evaluation, for somebody who has to decide whether to use the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from seqclf.evaluation.decision import Decision
from seqclf.reporting import html
from seqclf.reporting.formatting import NONE, ends, number, percent, probability_text, score, shortened
from seqclf.reporting.guarantees import decision_lines
from seqclf.reporting.html import Html
from seqclf.reporting.run.figures import learning_curves, precision_recall, reliability
from seqclf.reporting.run.mistakes import Mistake
from seqclf.reporting.run.summary import BETWEEN, headline, interval, verdict_rows
from seqclf.reporting.run.threshold_slider import SCRIPT, dotted, operating_points, threshold_slider
from seqclf.system.atomic_files import write_output

NARROW_IN, BROAD_IN, CURVE_IN = 4.2, 8.6, 5.0
MOST_CLASSES = 12  # of a confusion matrix
MOST_ROWS = 60
LONG_TABLE = 25
MOST_WARNINGS = 50


@dataclass(frozen=True)
class Report:
    """What a page is made of. `metrics`: the blocks of metrics.json by split, the last of which is judged; `labels`
    (N,), `probabilities` (N, C): of its rows; `history`: a row per epoch; `best`: the epoch that was kept."""

    title: str
    metrics: Mapping[str, Any]
    classes: list[str]
    positive: str | None
    decision: Decision
    labels: np.ndarray
    probabilities: np.ndarray
    mistakes: Sequence[Mistake]
    baseline: Mapping[str, Any] | None = None
    calibration: Mapping[str, Any] | None = None
    history: Sequence[Mapping[str, Any]] = ()
    best: int | None = None
    warnings: Sequence[str] = ()
    config: Mapping[str, Any] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def split(self) -> str:
        return list(self.metrics)[-1]

    @property
    def found(self) -> Mapping[str, Any]:
        return self.metrics[self.split]


def write_report(report: Report, path: Path) -> None:
    """Needs no other file and no network."""
    parts = [_verdict(report)]
    if report.positive is not None and 0 < report.found["positive"]["rows"] < report.found["rows"]:
        parts.append(_threshold(report))
    if report.history:
        parts.append(_epochs(report))
    parts += [_confusion(report), _classes(report), _lengths(report), _calibration(report), _mistakes(report)]
    parts += [_data(report), _how(report)]
    page = html.page(shortened(report.title), headline(report.found, report.split, report.positive), parts, SCRIPT)
    write_output(path, page)


def _verdict(report: Report) -> Html:
    found = report.found
    lines = [f"{alarm['text']}. Try {alarm['remedy']}." for alarm in found["alarms"]]
    parts: list[object] = []
    if lines:
        parts += [html.paragraph("Do not use this model as it is:"), html.alerts(lines)]
    parts += [
        html.paragraph(f"{line[0].upper()}{line[1:]}.") for line in decision_lines(report.decision, found, report.split)
    ]
    names, rows = verdict_rows(report.metrics, report.baseline, report.positive)
    parts.append(html.table({"": "text", **dict.fromkeys(names, "number")}, rows, strong=0, stacked=True))
    if "intervals" in found:
        parts.append(html.paragraph(BETWEEN, soft=True))
    return html.section("Verdict", *parts)


def _threshold(report: Report) -> Html:
    index = report.classes.index(str(report.positive))
    truth, own = report.labels == index, report.probabilities[:, index]
    threshold = report.decision.threshold_of(index)
    points, place = operating_points(truth, own, threshold)
    _, recall, precision, _ = points[place]
    told = (
        f"From which probability on a sequence is called {shortened(report.positive, 40)}. The dot is where the model "
        f"stands; the dashed line is what alerts at random reach. Apply another with "
        f"threshold={probability_text(points[place][0])}."
    )
    return html.section(
        "Threshold",
        html.paragraph(told, soft=True),
        threshold_slider(points, place),
        dotted(precision_recall(truth, own, CURVE_IN), recall, precision),
    )


def _epochs(report: Report) -> Html:
    assert report.config is not None, "what has epochs was trained"
    monitor = report.config["monitor"]
    drawn = list(dict.fromkeys(["loss", "recall", monitor]))
    told_of = list(dict.fromkeys(["loss", "accuracy", "recall", monitor]))
    curves = html.picture(
        learning_curves(report.history, drawn, report.best, NARROW_IN),
        learning_curves(report.history, drawn, report.best, BROAD_IN),
        f"{', '.join(drawn)} of training and validation by epoch".replace("_", " "),
    )
    names = [name.replace("_", " ") for name in told_of]
    columns = {"epoch": "number", **dict.fromkeys(names, "number"), "observation": "text"}
    rows = [
        [
            row["epoch"],
            *(score(row.get(f"validation/{name}")) for name in told_of),
            shortened(row.get("observation", ""), 160),
        ]
        for row in report.history
    ]
    first, left_out, last = ends(rows, MOST_ROWS)
    gap = [["", *("" for _ in told_of), f"… {left_out:,} more epochs"]] if left_out else []
    shown = [*first, *gap, *last]
    best = next((place for place, row in enumerate(shown) if row[0] == report.best), None)
    listing = html.table(columns, shown, strong=best)
    told = "Validation in colour, training in grey; the dashed line is the epoch that was kept."
    return html.section(
        "Epochs",
        html.paragraph(told, soft=True),
        curves,
        html.folded("Every epoch", listing) if len(rows) > LONG_TABLE else listing,
    )


def _confusion(report: Report) -> Html:
    matrix = np.array(report.found["confusion"])
    if len(report.classes) > MOST_CLASSES:
        errors = [
            (int(matrix[row, column]), report.classes[row], report.classes[column])
            for row, column in zip(*np.nonzero(matrix), strict=True)
            if row != column
        ]
        rows = [[shortened(a, 40), shortened(b, 40), f"{count:,}"] for count, a, b in sorted(errors, reverse=True)[:25]]
        columns = {"is": "text", "was called": "text", "rows": "number"}
        return html.section("What is mistaken for what", html.table(columns, rows))
    head = "".join(f"<th scope='col'>{html.text(shortened(label, 14))}</th>" for label in report.classes)
    body = []
    for label, row in zip(report.classes, matrix, strict=True):
        cells = "".join(
            f'<td class="cell" style="--share:{100 * count / max(1, row.sum()):.0f}%">{count:,}</td>' for count in row
        )
        body.append(f"<tr><th scope='row'>{html.text(shortened(label, 20))}</th>{cells}</tr>")
    told = "A row is what sequences are, a column what they were called; darker is a larger share of the row."
    content = f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(body)}</tbody>"
    matrix_table = Html(f'<div class="wide"><table>{content}</table></div>')
    return html.section("Confusion", html.paragraph(told, soft=True), matrix_table)


def _classes(report: Report) -> Html:
    found = report.found
    intervals = found.get("intervals", {}).get("recall_by_class", {})
    labels = sorted(report.classes, key=lambda label: _last(found["recall_by_class"][label]))
    rows: list[Sequence[object]] = [
        [
            shortened(label, 40),
            html.bar(found["recall_by_class"][label] or 0.0),
            *(score(found[f"{name}_by_class"][label]) for name in ("recall", "precision", "f1")),
            interval(intervals.get(label)),
            number(found["support_by_class"][label]),
        ]
        for label in labels
    ]
    first, left_out, last = ends(rows, MOST_ROWS)
    rows = [*first, *([[f"… {left_out:,} more"]] if left_out else []), *last]
    columns = {
        "class": "text",
        " ": "bar",
        **dict.fromkeys(("recall", "precision", "f1", "recall in", "rows"), "number"),
    }
    listing = html.table(columns, rows)
    return html.section("Recall by class", html.folded("All", listing) if len(rows) > LONG_TABLE else listing)


def _lengths(report: Report) -> Html:
    found = report.found
    parts = [(f"{part['low']:,} to {part['high']:,}", part) for part in found["by_length"]]
    if found["truncated"] is not None:
        parts.append(("cut at the limit", found["truncated"]))
    names = (
        ["recall", "precision", "average_precision"] if report.positive is not None else ["recall", "accuracy", "f1"]
    )
    rows = []
    for title, part in parts:
        own = part["positive"] if report.positive is not None else part
        counts = [number(part["rows"]), *([number(own["rows"])] if report.positive is not None else [])]
        rows.append([title, html.bar(own["recall"] or 0.0), *(score(own[name]) for name in names), *counts])
    of = f" of {shortened(report.positive, 30)}" if report.positive is not None else ", mean over classes"
    counted = ["rows"] if report.positive is None else ["rows", "of them positive"]
    headings = [name.replace("_", " ") for name in names] + counted
    columns = {"steps": "text", " ": "bar", **dict.fromkeys(headings, "number")}
    return html.section(
        "By length",
        html.paragraph(f"Recall{of}, and more, by how long the sequences are.", soft=True),
        html.table(columns, rows),
    )


def _calibration(report: Report) -> Html:
    index = None if report.positive is None else report.classes.index(report.positive)
    if index is None:
        truth = report.labels == report.probabilities.argmax(axis=1)
        own = report.probabilities.max(axis=1)
        what = "the most probable class is right"
    else:
        truth, own = report.labels == index, report.probabilities[:, index]
        what = f"a sequence is {shortened(report.positive, 40)}"
    told = (
        f"How often {what}, against how probable the model calls it: on the diagonal the probabilities can be trusted."
    )
    parts: list[object] = [html.paragraph(told, soft=True)]
    if report.calibration is not None:
        errors, temperature = report.calibration["ece"][report.split], report.calibration["temperature"]
        done = "is applied" if report.calibration["applied"] else "would be applied by decision.calibrate=true"
        parts.append(
            html.paragraph(
                f"Calibration error {percent(errors['before'])}; with the temperature {temperature:.2f} that "
                f"validation asks for, which {done}: {percent(errors['after'])}."
            )
        )
    else:
        parts.append(html.paragraph(f"Calibration error {percent(report.found['ece'])}."))
    return html.section("Calibration", *parts, Html(f'<div class="plot">{reliability(truth, own, CURVE_IN)}</div>'))


def _mistakes(report: Report) -> Html:
    if not report.mistakes:
        return html.section("Worst errors", html.paragraph(f"Every row of {report.split} is right."))
    rows = [
        [
            shortened(one.id, 30),
            shortened(one.label, 30),
            shortened(one.decided, 30),
            percent(one.probability),
            number(one.length),
            shortened(one.steps, 600),
        ]
        for one in report.mistakes
    ]
    told = f"Wrong rows of {report.split} whose true label the model called the least probable; ? is an unknown value."
    columns = {
        "id": "text",
        "is": "text",
        "was called": "text",
        "probability of the truth": "number",
        "steps": "number",
        "sequence": "text",
    }
    return html.section("Worst errors", html.paragraph(told, soft=True), html.table(columns, rows, stacked=True))


def _data(report: Report) -> Html:
    if not report.warnings:
        return html.section("Data", html.paragraph("Nothing about the data stood out."))
    shown = [shortened(line, 400) for line in report.warnings[:MOST_WARNINGS]]
    return html.section("Data", html.alerts(shown))


def _how(report: Report) -> Html:
    parts: list[object] = []
    if report.history:
        last = report.history[-1]
        parts.append(
            html.paragraph(
                f"{len(report.history)} epochs, {number(last['tokens_per_s'])} real steps a second, padding efficiency "
                f"{percent(last['padding_efficiency'])}, {number(last['memory_mb'])} MB of memory in the last."
            )
        )
    if report.versions:
        parts.append(
            html.paragraph(", ".join(f"{name} {version}" for name, version in report.versions.items()), soft=True)
        )
    if report.config is not None:
        text = yaml.safe_dump(dict(report.config), sort_keys=False, allow_unicode=True)
        parts.append(html.folded("Configuration", Html(f"<pre>{html.text(text)}</pre>")))
    return html.section("How it was made", *(parts or [html.paragraph(NONE)]))


def _last(value: float | None) -> float:
    """Sorts what is not known to the end."""
    return 2.0 if value is None else value
