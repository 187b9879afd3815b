"""Horizontal bars with their figures, in groups: they fit any width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from seqclf.documents.figures import INK, render_svg

ROW_IN = 0.24  # height of a bar
GAP = 0.4  # of a row, between groups
LABEL_IN, FIGURE_IN = 0.95, 0.6  # left of the axis and right of the longest bar


class Bar(NamedTuple):
    """`value`: None where there is no figure, which `text` explains. `colour`, `alpha`: of Matplotlib."""

    label: str
    value: float | None
    text: str
    colour: str
    alpha: float = 1.0


class BarGroup(NamedTuple):
    """Bars below a heading."""

    heading: str
    bars: Sequence[Bar]


def height_in(groups: Sequence[BarGroup]) -> float:
    """Return the height in inches that groups of bars need."""
    return 0.1 + ROW_IN * sum(len(group.bars) + 1 + GAP for group in groups)


def bars_svg(groups: Sequence[BarGroup], width_in: float) -> Markup:
    """Return groups of bars as an `svg` element."""
    height = height_in(groups)

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        left, right = LABEL_IN / width_in, 1 - FIGURE_IN / width_in
        figure.subplots_adjust(left=left, right=right, top=1 - 0.05 / height, bottom=0.05 / height)
        draw_bars(axis, groups)

    return render_svg(draw, width_in, height)


def draw_bars(axis: Any, groups: Sequence[BarGroup]) -> None:
    """Draw groups of bars, one below the other, in an axis of the height that `height_in` gives."""
    row = 0.0
    for group in groups:
        axis.text(0, row, group.heading, color=INK, va="center", weight="bold")
        row += 1
        for bar in group.bars:
            axis.text(
                -0.01, row, f"{bar.label} ", color=INK, va="center", ha="right", transform=axis.get_yaxis_transform()
            )
            if bar.value is not None:
                axis.barh(row, bar.value, 0.75, color=bar.colour, alpha=bar.alpha)
            axis.text(bar.value or 0, row, f" {bar.text}", color=INK, va="center")
            row += 1
        row += GAP
    axis.set_ylim(row - 0.5, -0.7)
    axis.set_xlim(left=0)
    axis.axis("off")
