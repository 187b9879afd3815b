"""How long the sequences are, as a picture: a histogram of all rows, and below it one of each class."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqclf.reporting.formatting import number, shortened
from seqclf.reporting.html import Html
from seqclf.reporting.svg import FILL, INK, MARK, bare, drawn

MOST_PANELS = 10
MARGIN_IN, RIGHT_IN, TOP_IN, BOTTOM_IN, ALL_IN, CLASS_IN = 1.0, 0.7, 0.5, 0.45, 1.1, 0.4


def length_picture(lengths: dict[str, Any], width_in: float) -> Html:
    """`lengths`: as in a survey; inline SVG without names, links or colours of its own."""
    panels = _panels(lengths)
    height_in = TOP_IN + ALL_IN + CLASS_IN * (len(panels) - 1) + BOTTOM_IN
    return drawn(lambda figure: _draw(figure, lengths, panels), width_in, height_in)


def is_geometric(edges: list[float]) -> bool:
    """Whether the bins grow, and with them the axis has to."""
    return len(edges) > 2 and edges[0] > 0 and edges[-1] - edges[-2] > 2 * (edges[1] - edges[0])


def _panels(lengths: dict[str, Any]) -> list[tuple[str, np.ndarray, float | None]]:
    """Title, counts and median of all rows and of the largest classes; the rest is one panel, without a median."""
    by_class = {label: np.asarray(counts) for label, counts in lengths["histogram"]["by_class"].items()}
    names = sorted(by_class, key=lambda label: -by_class[label].sum())
    panels = [("all rows", np.sum(list(by_class.values()), axis=0), lengths["all"]["p50"])]
    if len(names) < 2:
        return panels
    own, rest = (names, []) if len(names) <= MOST_PANELS else (names[: MOST_PANELS - 1], names[MOST_PANELS - 1 :])
    for label in own:
        panels.append((shortened(label, 12), by_class[label], lengths["by_class"].get(label, {}).get("p50")))
    if rest:
        panels.append((f"{len(rest):,} others", np.sum([by_class[label] for label in rest], axis=0), None))
    return panels


def _draw(figure: Any, lengths: dict[str, Any], panels: list[tuple[str, np.ndarray, float | None]]) -> None:
    from matplotlib.ticker import MaxNLocator

    edges = lengths["histogram"]["edges"]
    ratios = [ALL_IN] + [CLASS_IN] * (len(panels) - 1)
    width, height = figure.get_size_inches()
    place = {"left": MARGIN_IN / width, "right": 1 - RIGHT_IN / width, "top": 1 - TOP_IN / height}
    shape = {"height_ratios": ratios, "bottom": BOTTOM_IN / height, "hspace": 0.25, **place}
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw=shape)[:, 0]
    for axis, (title, counts, median) in zip(axes, panels, strict=True):
        axis.stairs(counts, edges, fill=True, color=FILL, linewidth=0)
        axis.set_ylim(0, max(1, counts.max()) * 1.05)
        if median is not None:
            axis.axvline(median, color=MARK, linewidth=1.2)
        axis.text(-0.1 / (width - MARGIN_IN - RIGHT_IN), 0.1, title, parse_math=False, **_beside(axis, "right"))
        bare(axis)
    _mark(axes[0], lengths["all"])
    bottom = axes[-1]
    if is_geometric(edges):
        _logarithmic(bottom, edges)
    else:
        bottom.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    bottom.set_xlim(edges[0], edges[-1])
    bottom.set_xlabel("steps", color=INK)
    bottom.tick_params(axis="x", which="major", bottom=True, labelbottom=True, length=3, color=INK, labelcolor=INK)


def _beside(axis: Any, side: str) -> dict[str, Any]:
    return {"transform": axis.transAxes, "ha": side, "va": "bottom", "color": INK}


def _mark(axis: Any, summary: dict[str, float]) -> None:
    """The 5th, 50th and 95th percentile, their names above in two lines, so that they stay apart."""
    for name, side, line in (("p5", "right", 0), ("p50", "center", 1), ("p95", "left", 0)):
        where = summary[name]
        if name != "p50":
            axis.axvline(where, color=MARK, linewidth=0.8, linestyle=(0, (3, 2)))
        title = f"{'median' if name == 'p50' else name} {number(where)}"
        place = {"textcoords": "offset points", "xytext": (0, 2 + 11 * line)}
        axis.annotate(title, (where, 1), xycoords=axis.get_xaxis_transform(), ha=side, color=MARK, **place)


def _logarithmic(axis: Any, edges: list[float]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_xscale("log")
    short = edges[-1] / edges[0] < 100
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())
