"""The threshold section: scores with and without thresholds, and a slider over thresholds of the positive label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqclf.documents.blocks import Block, Section, Table, Template, Text
from seqclf.documents.formatting import number, probability_text, shortened
from seqclf.documents.formatting import score as score_text
from seqclf.evaluation.decision import FOLDS
from seqclf.evaluation.metrics import LabelMetrics, confusion_matrix, confusion_metrics, metric_title
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.split_result import threshold_labels
from seqclf.evaluation.targets import CONFIDENCE, Target, cost_of_picking
from seqclf.evaluation.thresholds import ROWS
from seqclf.report.charts import MARGIN, precision_recall
from seqclf.report.reported import Reported
from seqclf.report.score_tables import MAX_LABEL_CHARACTERS, score_columns
from seqclf.report.verdict import CROSS_VALIDATED
from seqclf.system.durations import duration_text

PICKED = (
    "Each line is what seqclf evaluate gives for its target, on average on the left, and {confidence:.0%} sure with "
    "decision.confidence={confidence:g} on the right. A statement is for a target set before these rows were seen. "
)
COST = (
    "Picked after reading, the worst line on the left misses its target by {shortfall:.3f} on average over such "
    "samples, and some line on the right misses its target in {missed:.0%} of them."
)
NO_COST = "What a pick after reading costs is not known for a precision, and by weight."
IN_ROWS = " * Reached by these rows alone: they are too few for a statement on average."
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


def first_alerts_section(reported: Reported) -> Section | None:
    """Return when the first alert of found positive rows comes, None where nothing tells it."""
    alerts, label = reported.first_alerts, shortened(reported.result.positive, MAX_LABEL_CHARACTERS)
    if alerts is None or not len(alerts.found):
        return None
    names = {"events read": number, "events before the end": number, "time before the end": duration_text}
    quartiles = np.quantile(alerts.found, (0.25, 0.5, 0.75), axis=0, method="lower").T.tolist()
    lines = zip(names.items(), quartiles, strict=True)
    rows: list[list[object]] = [[name, *map(show, each)] for (name, show), each in lines if np.isfinite(each).all()]
    caption = f"The first alert of {number(len(alerts.found))} found rows of {label} on {reported.split}"
    counts = f"{number(alerts.taken_back)} of {number(alerts.negatives)} other rows"
    text = f"{counts} have an alert on the way (predict running=true) and none at the end."
    columns = {"": "text", **dict.fromkeys(("first quartile", "median", "third quartile"), "number")}
    return Section("First alerts", [Table(columns, rows, caption=caption), Text(text)])


def threshold_section(reported: Reported) -> Section | None:
    """Return the table of scores and the slider, or `None` if neither applies.

    The table needs a decision with targets or a threshold, the slider rows with the positive label and others.
    """
    targets = threshold_labels(reported.result.decision, reported.result.positive)
    blocks: list[Block] = []
    if targets:
        text = "What the decision gives up for its targets, or for its threshold."
        blocks = [Text(text, soft=True), change_table(reported, targets)]
        blocks += [*target_blocks(reported.result), *forcing_blocks(reported.result)]
    positive = reported.metrics.positive
    if positive is None or not 0 < positive.rows < reported.metrics.rows:
        return Section("Threshold", blocks) if blocks else None
    index = reported.result.classes.index(positive.label)
    is_positive, score = reported.rows.labels == index, reported.probabilities[:, index]
    points, current = operating_points(is_positive, score, reported.result.decision.threshold_of(index))
    context = {
        "positive": reported.result.positive,
        "last": len(points) - 1,
        "current": current,
        "point": points[current],
        "drawing": precision_recall(is_positive, ranking_scores(reported.probabilities)[:, index]),
        "caption": _caption(positive, float(is_positive.mean())),
        "dot": None if points[current].precision is None else _dot(points[current]),
        "state": _script_state(points),
    }
    return Section("Threshold", [*blocks, Template("run/threshold.html", context, script="run/threshold.js")])


def change_table(reported: Reported, targets: Sequence[str]) -> Table:
    """Compare argmax with the decision: accuracy, and recall and precision of each label in `targets`."""
    confusion = confusion_matrix(
        reported.rows.labels, reported.probabilities.argmax(axis=1), len(reported.result.classes)
    )
    argmax, decision = confusion_metrics(confusion, reported.result.classes), reported.metrics
    both = (argmax, decision)
    rows = [["accuracy", *(score_text(metrics.accuracy) for metrics in both)]]
    for label in targets:
        name, index = shortened(label, 20), reported.result.classes.index(label)
        rows += [
            [metric_title("recall", name), *(score_text(metrics.recall_by_class[label]) for metrics in both)],
            [metric_title("precision", name), *(score_text(metrics.precision_by_class[label]) for metrics in both)],
            [f"rows given {name}", *(number(sum(row[index] for row in metrics.confusion)) for metrics in both)],
        ]
    columns = {
        "on " + reported.split: "text",
        **score_columns(["most probable label", "decision by folds" if reported.metrics.by_folds else "decision"]),
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


def _caption(metrics: LabelMetrics, share: float) -> str:
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


def target_blocks(result: RunResult) -> list[Block]:
    """Return the table of targets of each guarantee, and a sentence about what a pick from the table costs."""
    blocks: list[Block] = []
    for asked in result.decision.targets:
        if not (rows := [row for row in result.targets if (row.rule, row.label) == (asked.rule, asked.label)]):
            continue
        confidence = next((row.confidence for row in rows if row.confidence is not None), CONFIDENCE)
        lines: dict[float, dict[bool, Target]] = {}
        for row in rows:
            lines.setdefault(row.target, {})[row.confidence is not None] = row
        cells = [
            (
                f"{target:g}{' (this run)' if any(row.asked for row in line.values()) else ''}",
                *_cells(line.get(False)),
                *_cells(line.get(True)),
            )
            for target, line in lines.items()
        ]
        sure = f", {confidence:.0%} sure"
        by_weight = asked.weighted is not None and asked.rule == "min_recall"
        names = ("threshold", "alerts per 1,000", "precision", "recall")
        headings = [f"{name}{end}" for end in ("", sure) for name in names]
        headings[3] = "recall by weight" if by_weight else "recall"
        columns = {f"decision.{asked.rule}": "text", **dict.fromkeys(headings, "number")}
        caption = f"Targets for {shortened(asked.label, MAX_LABEL_CHARACTERS)} on the rows that set the threshold"
        place = next(
            (place for place, line in enumerate(lines.values()) if any(row.asked for row in line.values())), None
        )
        blocks.append(Table(columns, cells, place, caption=caption))
        cost = None if by_weight else cost_of_picking(rows, asked, len(result.decision.targets))
        text = PICKED.format(confidence=confidence)
        text += NO_COST if cost is None else COST.format(shortfall=cost[0], missed=cost[1])
        text += f" Estimates by cross-validation: {CROSS_VALIDATED}." if asked.basis == FOLDS else ""
        text += IN_ROWS if any(row.statement == ROWS for row in rows) else ""
        blocks.append(Text(text, soft=True))
    return blocks


def forcing_blocks(result: RunResult) -> list[Block]:
    """Return a table of the rows that force the threshold of a recall, an empty list without a recall target."""
    if not result.forcing:
        return []
    columns = {"row": "text", "label": "text", **dict.fromkeys(("score", "alerts per 1,000", "without it"), "number")}
    cells = [
        (
            *(shortened(row.id, 40), shortened(row.label, MAX_LABEL_CHARACTERS), probability_text(row.score)),
            *(number(row.alerts_per_1000), number(row.without_it), "check the label" if row.check_label else ""),
        )
        for row in result.forcing
    ]
    caption = "Rows with a target label and the lowest scores, and the alerts without each (threshold.parquet)"
    return [Table({**columns, "": "text"}, cells, caption=caption)]


def _cells(row: Target | None) -> tuple[str, ...]:
    if row is None:
        return ("\N{EN DASH}",) * 4
    threshold = probability_text(row.threshold) + ("*" if row.statement == ROWS else "")
    return threshold, number(row.alerts_per_1000), score_text(row.precision), score_text(row.recall)
