"""Pictures by matplotlib as inline SVG, in the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

# Stand for colours of the page, which follow light and dark.
INK, FILL, MARK, SOFT = "#010101", "#020202", "#030303", "#040404"
COLOURS = {INK: "currentColor", FILL: "var(--fill)", MARK: "var(--mark)", SOFT: "var(--soft)"}


def drawn(draw: Callable[[Any], None], width_in: float, height_in: float) -> Markup:
    """What `draw` draws on a figure of that size, as inline SVG without names, links or colours of its own."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": f"{width_in}", "font.size": 9, "font.family": "sans-serif"}
    settings["text.parse_math"] = False  # a label may hold dollar signs
    buffer = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page's reader has the letters that the fonts of this machine may lack
        figure = Figure(figsize=(width_in, height_in))
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _embedded(buffer.getvalue())


def bare(axis: Any) -> None:
    """Nothing but the base line."""
    for name, spine in axis.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(INK)
        spine.set_linewidth(0.5)
    axis.tick_params(which="both", left=False, labelleft=False, bottom=False, labelbottom=False)


def _embedded(svg: str) -> Markup:
    """The `svg` element alone: colours of the page, no size of its own, no name spaces and no ids but those in use."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(<g\b[^>]*?) id="[^"]*"', r"\1", svg)
    for stand_in, colour in COLOURS.items():
        svg = svg.replace(stand_in, colour)
    return Markup(svg)
