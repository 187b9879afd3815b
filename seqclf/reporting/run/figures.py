"""Figures of a report: learning curves, precision-recall curve and reliability diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from seqclf.reporting.svg import FILL, INK, MARK, SOFT, render_svg

MARGIN = {"left": 0.14, "right": 0.97, "bottom": 0.16, "top": 0.94}
MOST_POINTS = 300  # of a curve
CURVE_IN = 5.0  # width of a precision-recall curve or a reliability diagram


def learning_curves(
    history: Sequence[Mapping[str, Any]], names: Sequence[str], best: int | None, width_in: float
) -> Markup:
    """Metrics of training (grey) and validation by epoch. `best`: the epoch that was exported, marked by a line."""
    side_by_side = width_in > 6

    def draw(figure: Any) -> None:
        axes = figure.subplots(*((1, len(names)) if side_by_side else (len(names), 1)), squeeze=False).ravel()
        epochs = [row["epoch"] for row in history]
        for axis, name in zip(axes, names, strict=True):
            for split, colour in (("train", SOFT), ("validation", FILL)):
                # Missing values are NaN, which leaves a gap in the line.
                values = [_float(row.get(f"{split}/{name}")) for row in history]
                axis.plot(epochs, values, color=colour, linewidth=1.6, marker="o" if len(epochs) < 3 else None)
            if best is not None:
                axis.axvline(best, color=MARK, linewidth=1, linestyle=(0, (3, 2)))
            _style_axes(axis, "epoch" if side_by_side or axis is axes[-1] else "", name.replace("_", " "))
            axis.xaxis.get_major_locator().set_params(integer=True)
            if name != "loss":
                axis.set_ylim(top=1.0)
        margin = {"bottom": 0.17, "left": 0.09} if side_by_side else {"bottom": 0.24 / len(names), "left": 0.14}
        figure.subplots_adjust(**margin, right=0.98, top=0.96, wspace=0.1 * (1 + len(names)), hspace=0.25)

    return render_svg(draw, width_in, 2.6 if side_by_side else 2.3 * len(names))


def precision_recall(truth: np.ndarray, score: np.ndarray, width_in: float) -> Markup:
    """Precision-recall curve of `score` (N,) for the rows of `truth` (N,) bool.

    The axes go from 0 to 1 and fill the box `MARGIN`, where the page places its dot.
    """
    from sklearn.metrics import precision_recall_curve

    precision, recall, _ = precision_recall_curve(truth, score)
    # Only points where recall changes, on both sides. Nearly all others lie where almost every row is an alert.
    changes = np.flatnonzero(np.diff(recall))
    corners = np.unique([0, *changes, *(changes + 1), len(recall) - 1])
    visible = corners[_thinned(len(corners))]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        axis.plot(recall[visible], precision[visible], color=FILL, linewidth=1.8, drawstyle="steps-post")
        axis.axhline(truth.mean(), color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
        _style_axes(axis, "recall", "precision")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        figure.subplots_adjust(**MARGIN)

    return render_svg(draw, width_in, width_in * 0.72)


def reliability(truth: np.ndarray, score: np.ndarray, width_in: float) -> Markup:
    """Reliability diagram: share of rows where `truth` (N,) is true by `score` (N,), in ten bins of equal size."""
    # Bins of equal size: with rare positives, bins of equal width would be nearly empty but for the first.
    order = np.argsort(score, kind="stable")
    bins = [part for part in np.array_split(order, 10) if len(part)]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        axis.plot([0, 1], [0, 1], color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
        axis.plot(
            [score[part].mean() for part in bins],
            [truth[part].mean() for part in bins],
            color=FILL,
            linewidth=1.2,
            marker="o",
            markersize=5,
        )
        _style_axes(axis, "probability", "share of rows")
        axis.set_xlim(0, 1)
        axis.set_ylim(0, 1)
        figure.subplots_adjust(**MARGIN)

    return render_svg(draw, width_in, width_in * 0.72)


def _style_axes(axis: Any, x_label: str, y_label: str) -> None:
    """Two thin axes and their labels."""
    for name, spine in axis.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.5)
    axis.tick_params(color=INK, labelcolor=INK, length=3, width=0.5)
    axis.set_xlabel(x_label, color=INK)
    axis.set_ylabel(y_label, color=INK)


def _thinned(count: int) -> np.ndarray:
    """At most `MOST_POINTS` evenly spaced indices of `count` points."""
    return np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int))


def _float(value: Any) -> float:
    return float("nan") if value in (None, "") else float(value)
