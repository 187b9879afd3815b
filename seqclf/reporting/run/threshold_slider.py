"""A threshold that can be moved: recall, precision and alerts as they would be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from seqclf.reporting.formatting import percent, probability_text
from seqclf.reporting.html import Html
from seqclf.reporting.run.figures import MARGIN

STEPS = 100  # of the slider, over the positive rows and over all rows each

SCRIPT = """
(() => {
  const holder = document.getElementById("threshold-points");
  if (!holder) return;
  const { points, told, left, width, bottom, height } = JSON.parse(holder.textContent);
  const slider = document.getElementById("threshold");
  const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
  const share = (value) => (100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1) + "%";
  const move = () => {
    const [, recall, precision, alerts] = points[slider.value];
    show("value", told[slider.value]);
    show("recall", share(recall));
    show("precision", precision === null ? "-" : share(precision));
    show("alerts", share(alerts));
    slider.setAttribute("aria-valuetext", "threshold " + told[slider.value]);
    for (const dot of document.querySelectorAll(".plot i.dot")) {
      dot.style.left = 100 * (left + recall * width) + "%";
      dot.style.top = 100 * (1 - bottom - (precision === null ? 1 : precision) * height) + "%";
    }
  };
  slider.addEventListener("input", move);
  move();
})();
"""


def operating_points(truth: np.ndarray, score: np.ndarray, threshold: float) -> tuple[list[list[Any]], int]:
    """Rows of threshold, recall, precision (None without alerts) and share of alerts, by rising threshold; and the
    place of `threshold` among them."""
    shares = np.linspace(0, 1, STEPS)
    spread = np.quantile(score, shares, method="nearest")
    own = np.quantile(score[truth], shares, method="nearest") if truth.any() else spread
    places = np.unique([*spread, *own, threshold, np.nextafter(score.max(), 2)])
    rows: list[list[Any]] = []
    for place in places.tolist():
        chosen = score >= place
        alerts, right = int(chosen.sum()), int((chosen & truth).sum())
        rows.append([place, right / max(1, int(truth.sum())), right / alerts if alerts else None, alerts / len(score)])
    return rows, int(np.searchsorted(places, threshold))


def dotted(picture: Html, recall: float, precision: float | None) -> Html:
    """A precision-recall picture with a dot that the slider moves."""
    left = MARGIN["left"] + recall * (MARGIN["right"] - MARGIN["left"])
    up = MARGIN["bottom"] + (1.0 if precision is None else precision) * (MARGIN["top"] - MARGIN["bottom"])
    dot = f'<i class="dot" style="left:{100 * left:.2f}%;top:{100 * (1 - up):.2f}%"></i>'
    return Html(f'<div class="plot">{picture}{dot}</div>')


def threshold_slider(points: list[list[Any]], place: int) -> Html:
    """`points`: of `operating_points`; the script of the page, `SCRIPT`, moves what stands here."""
    threshold, recall, precision, alerts = points[place]
    state = {
        "points": points,
        "told": [probability_text(row[0]) for row in points],
        "left": MARGIN["left"],
        "width": MARGIN["right"] - MARGIN["left"],
        "bottom": MARGIN["bottom"],
        "height": MARGIN["top"] - MARGIN["bottom"],
    }
    shown = {
        "value": ("threshold", probability_text(threshold)),
        "recall": ("recall", percent(recall)),
        "precision": ("precision", "-" if precision is None else percent(precision)),
        "alerts": ("alerts", percent(alerts)),
    }
    cells = "".join(
        f'<div><dt>{label}</dt><dd id="threshold-{name}">{value}</dd></div>' for name, (label, value) in shown.items()
    )
    return Html(
        f'<div class="slider"><input type="range" id="threshold" aria-label="threshold" min="0" '
        f'max="{len(points) - 1}" value="{place}"><dl>{cells}</dl></div>\n'
        f'<script type="application/json" id="threshold-points">{json.dumps(state)}</script>'
    )
