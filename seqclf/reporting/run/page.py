"""report.html: the verdict on a run or an evaluation, for readers who decide whether to use the model."""

from __future__ import annotations

from pathlib import Path

import yaml

from seqclf.reporting import html
from seqclf.reporting.formatting import NO_VALUE, number, percent, probability_text, shortened
from seqclf.reporting.guarantees import decision_lines
from seqclf.reporting.html import Html
from seqclf.reporting.run.epochs import epochs_section
from seqclf.reporting.run.figures import precision_recall
from seqclf.reporting.run.performance import (
    CURVE_IN,
    calibration_section,
    classes_section,
    confusion_section,
    lengths_section,
    mistakes_section,
)
from seqclf.reporting.run.report import Report
from seqclf.reporting.run.summary import BETWEEN, headline, verdict_rows
from seqclf.reporting.run.threshold_slider import SCRIPT, operating_points, threshold_slider, with_dot
from seqclf.system.atomic_files import write_output

MOST_WARNINGS = 50


def write_report(report: Report, path: Path) -> None:
    """Write a page that needs no other file and no network."""
    parts = [_verdict(report)]
    positive = report.metrics.positive
    # A precision-recall curve needs rows of both classes.
    if positive is not None and 0 < positive.rows < report.metrics.rows:
        parts.append(_threshold(report))
    if report.history:
        parts.append(epochs_section(report))
    parts += [confusion_section(report), classes_section(report), lengths_section(report)]
    parts += [calibration_section(report), mistakes_section(report), _data(report), _provenance(report)]
    page = html.page(shortened(report.title), headline(report.metrics, report.split), parts, SCRIPT)
    write_output(path, page)


def _verdict(report: Report) -> Html:
    metrics = report.metrics
    parts: list[object] = []
    # Alarms come first, so that no reader takes the good figures below for the result.
    if metrics.alarms:
        alarms = [f"{alarm.text}. Try {alarm.remedy}." for alarm in metrics.alarms]
        parts += [html.paragraph("Do not use this model as it is:"), html.alerts(alarms)]
    for line in decision_lines(report.evaluation.decision, metrics, report.split):
        parts.append(html.paragraph(f"{line[0].upper()}{line[1:]}."))
    names, rows = verdict_rows(report.evaluation.metrics, report.baseline)
    parts.append(html.table({"": "text", **dict.fromkeys(names, "number")}, rows, strong=0, stacked=True))
    if metrics.intervals is not None:
        parts.append(html.paragraph(BETWEEN, soft=True))
    return html.section("Verdict", *parts)


def _threshold(report: Report) -> Html:
    index = report.positive_index
    assert index is not None
    is_positive, score = report.labels == index, report.evaluation.probabilities[:, index]
    points, current = operating_points(is_positive, score, report.evaluation.decision.threshold_of(index))
    explanation = (
        f"From which probability on a sequence is predicted as {shortened(report.positive, 40)}. The dot is where the "
        "model stands. The dashed line is the precision of alerts at random. Apply another threshold with "
        f"threshold={probability_text(points[current].threshold)}."
    )
    curve = precision_recall(is_positive, score, CURVE_IN)
    return html.section(
        "Threshold",
        html.paragraph(explanation, soft=True),
        threshold_slider(points, current),
        with_dot(curve, points[current]),
    )


def _data(report: Report) -> Html:
    if not report.warnings:
        return html.section("Data", html.paragraph("Nothing about the data stood out."))
    return html.section("Data", html.alerts([shortened(line, 400) for line in report.warnings[:MOST_WARNINGS]]))


def _provenance(report: Report) -> Html:
    parts: list[object] = []
    if report.history:
        last = report.history[-1]
        parts.append(
            html.paragraph(
                f"{len(report.history)} epochs. The last: {number(last['tokens_per_s'])} tokens a second without "
                f"padding, padding efficiency {percent(last['padding_efficiency'])}, {number(last['memory_mb'])} MB of "
                "memory."
            )
        )
    if report.versions:
        versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
        parts.append(html.paragraph(versions, soft=True))
    if report.config is not None:
        text = yaml.safe_dump(dict(report.config), sort_keys=False, allow_unicode=True)
        parts.append(html.folded("Configuration", Html(f"<pre>{html.text(text)}</pre>")))
    return html.section("Provenance", *(parts or [html.paragraph(NO_VALUE)]))
