"""Histograms of sequence lengths as inline SVG: a top panel for all rows, and one panel below for each class."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from markupsafe import Markup

from seqclf.documents.figures import FILL, INK, MARK, hide_axes, render_svg
from seqclf.documents.formatting import number, shortened
from seqclf.survey.lengths import LengthStatistics, LengthSummary

MAX_PANELS = 10  # maximum number of class panels; the smallest classes share the last panel
# Four margins, the height of the panel of all rows, and the height of a class panel, in inches. The left margin holds
# the panel titles.
MARGIN_IN, RIGHT_IN, TOP_IN, BOTTOM_IN, ALL_IN, CLASS_IN = 1.0, 0.7, 0.5, 0.45, 1.1, 0.4


class Panel(NamedTuple):
    """One histogram of lengths.

    `counts`: number of rows in each of the B bins. `median`: median length, or `None` for a panel of several classes.
    """

    title: str
    counts: np.ndarray
    median: float | None


def length_picture(lengths: LengthStatistics, width_in: float) -> Markup:
    """Draw the length histograms of all rows and of each class. `width_in`: width of the figure in inches."""
    panels = _panels(lengths)
    height_in = TOP_IN + ALL_IN + CLASS_IN * (len(panels) - 1) + BOTTOM_IN
    return render_svg(lambda figure: _draw(figure, lengths, panels), width_in, height_in)


def is_geometric(edges: list[float]) -> bool:
    """Return True if the bins become wider with increasing length. The length axis of such bins is logarithmic."""
    return len(edges) > 2 and edges[0] > 0 and edges[-1] - edges[-2] > 2 * (edges[1] - edges[0])


def _panels(lengths: LengthStatistics) -> list[Panel]:
    """Return a panel for all rows, a panel for each of the largest classes, and one panel for the remaining classes."""
    counts = {label: np.asarray(row_counts) for label, row_counts in lengths.histogram.by_class.items()}
    labels = sorted(counts, key=lambda label: -counts[label].sum())
    panels = [Panel("all rows", np.sum(list(counts.values()), axis=0), lengths.all_rows.p50)]
    if len(labels) < 2:
        return panels
    shown = len(labels) if len(labels) <= MAX_PANELS else MAX_PANELS - 1
    for label in labels[:shown]:
        summary = lengths.by_class.get(label)
        panels.append(Panel(shortened(label, 12), counts[label], summary.p50 if summary else None))
    if rest := labels[shown:]:
        panels.append(Panel(f"{len(rest):,} others", np.sum([counts[label] for label in rest], axis=0), None))
    return panels


def _draw(figure: Any, lengths: LengthStatistics, panels: list[Panel]) -> None:
    from matplotlib.ticker import MaxNLocator

    edges = lengths.histogram.edges
    width, height = figure.get_size_inches()
    grid = {
        "height_ratios": [ALL_IN] + [CLASS_IN] * (len(panels) - 1),
        "left": MARGIN_IN / width,
        "right": 1 - RIGHT_IN / width,
        "top": 1 - TOP_IN / height,
        "bottom": BOTTOM_IN / height,
        "hspace": 0.25,
    }
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=grid)[:, 0]
    title_x = -0.1 / (width - MARGIN_IN - RIGHT_IN)
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, edges, title_x)
    _mark_percentiles(axes[0], lengths.all_rows)
    bottom = axes[-1]
    if is_geometric(edges):
        _use_log_scale(bottom, edges)
    else:
        bottom.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    bottom.set_xlim(edges[0], edges[-1])
    bottom.set_xlabel("tokens", color=INK)
    bottom.tick_params(axis="x", which="major", bottom=True, labelbottom=True, length=3, color=INK, labelcolor=INK)


def _draw_panel(axis: Any, panel: Panel, edges: list[float], title_x: float) -> None:
    axis.stairs(panel.counts, edges, fill=True, color=FILL, linewidth=0)
    axis.set_ylim(0, max(1, panel.counts.max()) * 1.05)
    if panel.median is not None:
        axis.axvline(panel.median, color=MARK, linewidth=1.2)
    style = {"transform": axis.transAxes, "ha": "right", "va": "bottom", "color": INK}
    axis.text(title_x, 0.1, panel.title, parse_math=False, **style)  # a label may hold dollar signs
    hide_axes(axis)


def _mark_percentiles(axis: Any, summary: LengthSummary) -> None:
    """Mark the 5th, 50th and 95th percentile.

    The text of the median is one line higher than the others, so that texts do not overlap.
    """
    for name, length, side, line in (
        ("p5", summary.p5, "right", 0),
        ("median", summary.p50, "center", 1),
        ("p95", summary.p95, "left", 0),
    ):
        if name != "median":  # `_draw_panel` has drawn the median
            axis.axvline(length, color=MARK, linewidth=0.8, linestyle=(0, (3, 2)))
        offset = {"textcoords": "offset points", "xytext": (0, 2 + 11 * line)}
        position = {"xy": (length, 1), "xycoords": axis.get_xaxis_transform(), "ha": side}
        axis.annotate(f"{name} {number(length)}", color=MARK, **position, **offset)


def _use_log_scale(axis: Any, edges: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    few_decades = edges[-1] / edges[0] < 100
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few_decades else (1,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())
