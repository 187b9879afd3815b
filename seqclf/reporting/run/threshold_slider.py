"""Threshold slider of a report: recall, precision and alerts at every threshold."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from seqclf.reporting.formatting import percent, probability_text
from seqclf.reporting.html import Html
from seqclf.reporting.run.figures import MARGIN

POINTS = 100  # quantiles of the scores, of the positive rows and of all rows

SCRIPT = """
(() => {
  const holder = document.getElementById("threshold-points");
  if (!holder) return;
  const { points, texts, left, width, bottom, height } = JSON.parse(holder.textContent);
  const slider = document.getElementById("threshold");
  const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
  const share = (value) => (100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1) + "%";
  const move = () => {
    const [, recall, precision, alerts] = points[slider.value];
    show("value", texts[slider.value]);
    show("recall", share(recall));
    show("precision", precision === null ? "-" : share(precision));
    show("alerts", share(alerts));
    slider.setAttribute("aria-valuetext", "threshold " + texts[slider.value]);
    for (const dot of document.querySelectorAll(".plot i.dot")) {
      dot.style.left = 100 * (left + recall * width) + "%";
      dot.style.top = 100 * (1 - bottom - (precision === null ? 1 : precision) * height) + "%";
    }
  };
  slider.addEventListener("input", move);
  move();
})();
"""


class OperatingPoint(NamedTuple):
    """Metrics at a threshold. `precision` is None without alerts. `alerts` is their share of all rows."""

    threshold: float
    recall: float
    precision: float | None
    alerts: float


def operating_points(is_positive: np.ndarray, score: np.ndarray, threshold: float) -> tuple[list[OperatingPoint], int]:
    """Operating points by rising threshold, and the index of `threshold` among them.

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
        points.append(OperatingPoint(value, recall, hits / alerts if alerts else None, alerts / len(score)))
    return points, int(np.searchsorted(thresholds, threshold))


def with_dot(curve: Html, point: OperatingPoint) -> Html:
    """A precision-recall curve with a dot that the slider moves."""
    precision = 1.0 if point.precision is None else point.precision
    left = MARGIN["left"] + point.recall * (MARGIN["right"] - MARGIN["left"])
    up = MARGIN["bottom"] + precision * (MARGIN["top"] - MARGIN["bottom"])
    dot = f'<i class="dot" style="left:{100 * left:.2f}%;top:{100 * (1 - up):.2f}%"></i>'
    return Html(f'<div class="plot">{curve}{dot}</div>')


def threshold_slider(points: list[OperatingPoint], current: int) -> Html:
    """The slider over `points`, at the point `current`. The page's `SCRIPT` updates its figures."""
    point = points[current]
    state = {
        "points": points,
        "texts": [probability_text(point.threshold) for point in points],
        "left": MARGIN["left"],
        "width": MARGIN["right"] - MARGIN["left"],
        "bottom": MARGIN["bottom"],
        "height": MARGIN["top"] - MARGIN["bottom"],
    }
    figures = {
        "value": ("threshold", probability_text(point.threshold)),
        "recall": ("recall", percent(point.recall)),
        "precision": ("precision", "-" if point.precision is None else percent(point.precision)),
        "alerts": ("alerts", percent(point.alerts)),
    }
    cells = "".join(
        f'<div><dt>{label}</dt><dd id="threshold-{name}">{value}</dd></div>' for name, (label, value) in figures.items()
    )
    return Html(
        f'<div class="slider"><input type="range" id="threshold" aria-label="threshold" min="0" '
        f'max="{len(points) - 1}" value="{current}"><dl>{cells}</dl></div>\n'
        f'<script type="application/json" id="threshold-points">{json.dumps(state)}</script>'
    )
