"""Matplotlib figures as inline SVG in the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from markupsafe import Markup

# Figures are drawn in these placeholders, which become the colours of the page and so follow light and dark mode.
INK, FILL, MARK, SOFT = "#010101", "#020202", "#030303", "#040404"
PAGE_COLOURS = {INK: "currentColor", FILL: "var(--fill)", MARK: "var(--mark)", SOFT: "var(--soft)"}
NARROW_IN, BROAD_IN = 4.2, 8.6  # widths of a picture on a phone and in a wide window


class Picture(NamedTuple):
    """A figure at both widths, for the macro `show_picture`. The style sheet hides one of them."""

    narrow: Markup
    broad: Markup
    description: str


def picture(draw: Callable[[float], Markup], description: str) -> Picture:
    """Return a figure for phones and for wide windows. `draw`: width in inches → SVG. `description`: in words."""
    return Picture(draw(NARROW_IN), draw(BROAD_IN), description)


def render_svg(draw: Callable[[Any], None], width_in: float, height_in: float) -> Markup:
    """Let `draw` fill a figure of this size in inches, and return it as an `svg` element."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": f"{width_in}",  # the same ids in every run, and different ones for the two sizes of a picture
        "font.size": 9,
        "font.family": "sans-serif",
        "text.parse_math": False,  # a label may hold dollar signs
    }
    buffer = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that this machine's fonts lack: the reader's browser has them
        figure = Figure(figsize=(width_in, height_in))
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue())


def hide_axes(axis: Any) -> None:
    """Hide everything of an axis except its base line."""
    for name, spine in axis.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(INK)
        spine.set_linewidth(0.5)
    axis.tick_params(which="both", left=False, labelleft=False, bottom=False, labelbottom=False)


def _inline(svg: str) -> Markup:
    """Return the `svg` element without metadata, fixed size, namespaces and unused ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(<g\b[^>]*?) id="[^"]*"', r"\1", svg)
    for placeholder, colour in PAGE_COLOURS.items():
        svg = svg.replace(placeholder, colour)
    return Markup(svg)
