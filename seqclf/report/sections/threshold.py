"""Threshold section of a report: the price of each target, and a slider over the thresholds of the positive label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqclf.documents.formatting import number, probability_text, shortened
from seqclf.documents.formatting import score as score_text
from seqclf.documents.html import Section, Table
from seqclf.evaluation.metrics import PositiveMetrics, confusion_matrix, confusion_metrics, metric_title
from seqclf.evaluation.results import threshold_labels
from seqclf.report.figures import CURVE_IN, MARGIN, precision_recall, roc
from seqclf.report.report import Report
from seqclf.report.score_table import score_columns
from seqclf.report.section import ReportSection

POINTS = 100  # quantiles of the scores, of the positive rows and of all rows
# The box of the axes, in shares of the figure. The script places its dot in it as `_dot` does.
BOX = {
    "left": MARGIN["left"],
    "width": MARGIN["right"] - MARGIN["left"],
    "bottom": MARGIN["bottom"],
    "height": MARGIN["top"] - MARGIN["bottom"],
}


class OperatingPoint(NamedTuple):
    """Metrics at a threshold. `precision` is None without alerts. `alerts` is their share of all rows.

    `false_alarms`: the share of the rows of the other class that are alerts.
    """

    threshold: float
    recall: float
    precision: float | None
    alerts: float
    false_alarms: float


class ThresholdSection(ReportSection):
    """Price of the thresholds of the decision, and a slider over those of the positive label."""

    position: ClassVar[float] = 20

    def build(self, report: Report) -> Section | None:
        """Return the section. None without targets and curves, which do not exist where a class has no row."""
        targets = threshold_labels(report.result.decision, report.positive)
        change = change_table(report, targets) if targets else None
        positive, index = report.metrics.positive, report.positive_index
        if positive is None or index is None or not 0 < positive.rows < report.metrics.rows:
            return None if change is None else Section("run/threshold.html", {"change": change, "curves": ()})
        is_positive, score = report.labels == index, report.evaluation.probabilities[:, index]
        points, current = operating_points(is_positive, score, report.result.decision.threshold_of(index))
        context = {
            "change": change,
            "positive": report.positive,
            "last": len(points) - 1,
            "current": current,
            "point": points[current],
            "curves": _curves(is_positive, score, points[current], positive),
            "state": _script_state(points),
        }
        return Section("run/threshold.html", context, script="run/threshold.js")


def change_table(report: Report, targets: Sequence[str]) -> Table:
    """Return accuracy, and recall and precision of the labels `targets`, at argmax and at the decision."""
    confusion = confusion_matrix(report.labels, report.evaluation.probabilities.argmax(axis=1), len(report.classes))
    argmax, decision = confusion_metrics(confusion, report.classes), report.metrics
    both = (argmax, decision)
    rows = [["accuracy", *(score_text(metrics.accuracy) for metrics in both)]]
    for label in targets:
        name, index = shortened(label, 20), report.classes.index(label)
        rows += [
            [metric_title("recall", name), *(score_text(metrics.recall_by_class[label]) for metrics in both)],
            [metric_title("precision", name), *(score_text(metrics.precision_by_class[label]) for metrics in both)],
            [f"rows given {name}", *(number(sum(row[index] for row in metrics.confusion)) for metrics in both)],
        ]
    columns = {"on " + report.split: "text", **score_columns(["most probable label", "decision"])}
    return Table(columns, rows, caption="The most probable label, and the label that the decision gives")


def operating_points(is_positive: np.ndarray, score: np.ndarray, threshold: float) -> tuple[list[OperatingPoint], int]:
    """Return operating points by rising threshold, and the index of `threshold` among them.

    `is_positive`: (N,) bool. `score`: (N,) probabilities of the positive label.
    """
    # Quantiles of all rows alone would skip the range where rare positives lie.
    shares = np.linspace(0, 1, POINTS)
    all_rows = np.quantile(score, shares, method="nearest")
    positive_rows = np.quantile(score[is_positive], shares, method="nearest") if is_positive.any() else all_rows
    # The last threshold is above every score, so that the slider ends without alerts.
    thresholds = np.unique([*all_rows, *positive_rows, threshold, np.nextafter(score.max(), 2)])
    points = []
    for value in thresholds.tolist():
        is_alert = score >= value
        alerts, hits = int(is_alert.sum()), int((is_alert & is_positive).sum())
        recall = hits / max(1, int(is_positive.sum()))
        false_alarms = (alerts - hits) / max(1, int((~is_positive).sum()))
        precision = hits / alerts if alerts else None
        points.append(OperatingPoint(value, recall, precision, alerts / len(score), false_alarms))
    return points, int(np.searchsorted(thresholds, threshold))


def _curves(
    is_positive: np.ndarray, score: np.ndarray, point: OperatingPoint, metrics: PositiveMetrics
) -> list[dict[str, Any]]:
    """Return the precision-recall and the ROC curve, each with its caption and the place of its dot.

    `name`: the script knows the axes of a curve by it. Without alerts there is no precision, and so no dot.
    """
    share = score_text(float(is_positive.mean()))
    average_precision = f"Average precision {score_text(metrics.average_precision)}; alerts at random have {share}."
    area = f"AUROC {score_text(metrics.auroc)}; alerts at random have 0.5."
    return [
        {
            "name": "precision-recall",
            "title": "Precision and recall",
            "drawing": precision_recall(is_positive, score, CURVE_IN),
            "caption": average_precision,
            "dot": None if point.precision is None else _dot(point.recall, point.precision),
        },
        {
            "name": "roc",
            "title": "ROC: recall and false alarms",
            "drawing": roc(is_positive, score, CURVE_IN),
            "caption": area,
            "dot": _dot(point.false_alarms, point.recall),
        },
    ]


def _dot(x: float, y: float) -> dict[str, str]:
    """Return where a point lies in a figure, as CSS lengths from its left and top. `x`, `y`: from 0 to 1."""
    left = BOX["left"] + x * BOX["width"]
    up = BOX["bottom"] + y * BOX["height"]
    return {"left": f"{100 * left:.2f}%", "top": f"{100 * (1 - up):.2f}%"}


def _script_state(points: list[OperatingPoint]) -> dict[str, Any]:
    """Return what `threshold.js` reads. Thresholds are formatted here, so that page and terminal show the same text."""
    return {"points": points, "texts": [probability_text(point.threshold) for point in points], **BOX}
