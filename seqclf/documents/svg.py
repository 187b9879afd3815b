"""Matplotlib figures, drawn as inline SVG in the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

# Figures are drawn in placeholder colours. `_inline` replaces the placeholder colours with CSS colours, which follow
# light and dark mode.
INK, FILL, MARK, SOFT = "#010101", "#020202", "#030303", "#040404"
LINES = [f"#0101{number:02x}" for number in range(2, 8)]  # colours of several lines


def hue(number: int) -> int:
    """Return the hue of a number in degrees. Consecutive numbers have hues that lie far apart."""
    return round(number * 137.5) % 360  # the golden angle


PAGE_COLOURS = {INK: "currentColor", FILL: "var(--fill)", MARK: "var(--mark)", SOFT: "var(--soft)"}
PAGE_COLOURS |= {line: f"hsl({hue(number)} var(--vivid))" for number, line in enumerate(LINES, start=1)}


def render_svg(draw: Callable[[Any], None], width_in: float, height_in: float) -> Markup:
    """Create a figure of the given size in inches, call `draw` on the figure, and return an `svg` element."""
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "svg.fonttype": "none",  # keep text as text, not as outlines
        "svg.hashsalt": f"{width_in}",  # ids repeat in every run, but differ between widths
        "font.size": 9,
        "font.family": "sans-serif",
        "text.parse_math": False,  # a label may contain dollar signs
    }
    buffer = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # missing glyphs do not matter: the browser draws the text
        figure = Figure(figsize=(width_in, height_in))
        draw(figure)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue())


def _inline(svg: str) -> Markup:
    """Return the `svg` element without metadata, fixed size, namespaces and unused ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for size in ("height", "width"):
        svg = re.sub(rf'(<svg\b[^>]*?) {size}="[^"]*"', r"\1", svg)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'(<g\b[^>]*?) id="[^"]*"', r"\1", svg)
    for placeholder, colour in PAGE_COLOURS.items():
        svg = svg.replace(placeholder, colour)
    return Markup(svg)
