"""The threshold section: scores with and without thresholds, and a slider over thresholds of the positive label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqclf.documents.blocks import Block, Section, Table, Template, Text
from seqclf.documents.formatting import number, probability_text, shortened
from seqclf.documents.formatting import score as score_text
from seqclf.evaluation.metrics import PositiveMetrics, confusion_matrix, confusion_metrics, metric_title
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.results import threshold_labels
from seqclf.report.figures import MARGIN, precision_recall
from seqclf.report.report import Report
from seqclf.report.score_table import forcing_blocks, score_columns, target_blocks

POINTS = 100  # number of thresholds taken from the scores of positive rows, and again from the scores of all rows
# Box of the axes in fractions of the figure. `threshold.js` and `_dot` compute the position of the dot from this box.
BOX = {
    "left": MARGIN["left"],
    "width": MARGIN["right"] - MARGIN["left"],
    "bottom": MARGIN["bottom"],
    "height": MARGIN["top"] - MARGIN["bottom"],
}


class OperatingPoint(NamedTuple):
    """Metrics of the positive label at a threshold. `precision`: `None` without alerts. `alerts`: fraction of rows."""

    threshold: float
    recall: float
    precision: float | None
    alerts: float


def threshold_section(report: Report) -> Section | None:
    """Return the table of scores and the slider, or `None` if neither applies.

    The table needs a decision with targets or a threshold, the slider rows with the positive label and others.
    """
    targets = threshold_labels(report.result.decision, report.positive)
    blocks: list[Block] = []
    if targets:
        text = "What the decision gives up for its targets, or for its threshold."
        blocks = [Text(text, soft=True), change_table(report, targets)]
        blocks += [*target_blocks(report.result), *forcing_blocks(report.result)]
    positive, index = report.metrics.positive, report.positive_index
    if positive is None or index is None or not 0 < positive.rows < report.metrics.rows:
        return Section("Threshold", blocks) if blocks else None
    is_positive, score = report.labels == index, report.evaluation.probabilities[:, index]
    points, current = operating_points(is_positive, score, report.result.decision.threshold_of(index))
    context = {
        "positive": report.positive,
        "last": len(points) - 1,
        "current": current,
        "point": points[current],
        "drawing": precision_recall(is_positive, ranking_scores(report.evaluation.probabilities)[:, index]),
        "caption": _caption(positive, float(is_positive.mean())),
        "dot": None if points[current].precision is None else _dot(points[current]),
        "state": _script_state(points),
    }
    return Section("Threshold", [*blocks, Template("run/threshold.html", context, script="run/threshold.js")])


def change_table(report: Report, targets: Sequence[str]) -> Table:
    """Compare argmax with the decision: accuracy, and recall and precision of each label in `targets`."""
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
    columns = {
        "on " + report.split: "text",
        **score_columns(["most probable label", "decision by folds" if report.metrics.by_folds else "decision"]),
    }
    return Table(columns, rows, caption="The most probable label, and the label that the decision gives")


def operating_points(is_positive: np.ndarray, score: np.ndarray, threshold: float) -> tuple[list[OperatingPoint], int]:
    """Return operating points sorted by rising threshold, and the index of the point at `threshold`.

    `is_positive`: (N,) bool. `score`: (N,) probabilities of the positive label.
    """
    # Quantiles of all scores alone would miss the score range of rare positive rows.
    shares = np.linspace(0, 1, POINTS)
    all_rows = np.quantile(score, shares, method="nearest")
    positive_rows = np.quantile(score[is_positive], shares, method="nearest") if is_positive.any() else all_rows
    # The last threshold is above every score, so that no row is an alert at the end of the slider.
    thresholds = np.unique([*all_rows, *positive_rows, threshold, np.nextafter(score.max(), 2)])
    points = []
    for value in thresholds.tolist():
        is_alert = score >= value
        alerts, hits = int(is_alert.sum()), int((is_alert & is_positive).sum())
        recall = hits / max(1, int(is_positive.sum()))
        precision = hits / alerts if alerts else None
        points.append(OperatingPoint(value, recall, precision, alerts / len(score)))
    return points, int(np.searchsorted(thresholds, threshold))


def _caption(metrics: PositiveMetrics, share: float) -> str:
    """`share`: fraction of positive rows."""
    average_precision = f"Average precision {score_text(metrics.average_precision)} (alerts at random: {share:.4f})"
    return f"{average_precision}, AUROC {score_text(metrics.auroc)} (alerts at random: 0.5)."


def _dot(point: OperatingPoint) -> dict[str, str]:
    """Return the position on the curve as CSS lengths from the left and from the top."""
    left = BOX["left"] + point.recall * BOX["width"]
    up = BOX["bottom"] + (point.precision or 0.0) * BOX["height"]
    return {"left": f"{100 * left:.2f}%", "top": f"{100 * (1 - up):.2f}%"}


def _script_state(points: list[OperatingPoint]) -> dict[str, Any]:
    """Return the data that `threshold.js` reads, formatted here, so that page and terminal print the same digits."""
    return {"points": points, "texts": [probability_text(point.threshold) for point in points], **BOX}
