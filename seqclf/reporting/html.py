"""HTML pages from the Jinja templates in `reporting/templates`.

A page is one file that loads nothing else. Every value is escaped unless it is `Markup`, so a label or a column name
can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from seqclf.reporting.formatting import number, percent, score, shortened

POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
LONG_TABLE = 25  # rows; longer tables are folded


class Bar(NamedTuple):
    """A bar in a table cell, from one share of the cell's width to another, with an optional mark."""

    start: float
    end: float
    mark: float | None = None

    @property
    def left(self) -> str:
        """The start as a CSS length."""
        return _css_percent(_clipped(self.start))

    @property
    def width(self) -> str:
        """The distance from start to end as a CSS length."""
        return _css_percent(max(0.0, _clipped(self.end) - _clipped(self.start)))

    @property
    def tick(self) -> str | None:
        """The mark as a CSS length."""
        return None if self.mark is None else _css_percent(_clipped(self.mark))


def bar(share: float) -> Bar:
    """Return a bar from the left edge of its cell over a share of its width.

    >>> bar(0.25).left, bar(0.25).width
    ('0.0%', '25.0%')
    """
    return Bar(0.0, share)


@dataclass(frozen=True)
class Table:
    """A table for the macro `show`.

    `columns`: heading → "text", "number" or "bar", whose cells are `Bar`s. `strong`: index of a row in bold. `stacked`:
    on phones the cells of a row stand below each other. `folded`: title behind which the table is hidden at first.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[object]]
    strong: int | None = None
    stacked: bool = False
    folded: str | None = None

    @property
    def css_class(self) -> str:
        """Classes of the style sheet. A table with bars fills the width of the page."""
        return " ".join(["full"] * ("bar" in self.columns.values()) + ["stacked"] * self.stacked)


def render_page(template: str, *, title: str, summary: str, script: str = "", **context: Any) -> str:
    """Render a template that extends `base.html`.

    `script`: JavaScript at the end of the page. The page's policy names its hash, so that no other script can run.
    """
    policy = POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = policy.replace("inline'\"", f"inline'; script-src 'sha256-{digest}'\"")
    shell = {"title": title, "summary": summary, "policy": Markup(policy), "script": Markup(script)}
    return _environment().get_template(template).render(**shell, **context) + "\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name fails instead of leaving a gap in the page
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": percent, "score": score, "shortened": shortened}
    return environment


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))


def _css_percent(share: float) -> str:
    return f"{100 * share:.1f}%"


# Functions for the run report, which builds its page in Python. They render the same macros.

Html = Markup


def text(value: object) -> Markup:
    """Return any value as markup. Only what is not yet `Markup` is escaped."""
    return escape(value)


def page(title: object, summary: object, parts: Iterable[object], script: str = "") -> str:
    """Render a document of finished parts."""
    return render_page("parts.html", title=str(title), summary=str(summary), script=script, parts=list(parts))


def section(heading: object, *parts: object) -> Markup:
    return _macro("section", heading, caller=lambda: Markup("\n").join(escape(part) for part in parts))


def paragraph(value: object, soft: bool = False) -> Markup:
    return Markup('<p class="soft">{}</p>' if soft else "<p>{}</p>").format(value)


def alerts(lines: Iterable[object]) -> Markup:
    """Return a box with one line for each problem."""
    return _macro("alerts", list(lines))


def table(
    columns: Mapping[str, str], rows: Iterable[Sequence[object]], strong: int | None = None, stacked: bool = False
) -> Markup:
    """Return the markup of a `Table`."""
    return _macro("show", Table(columns, list(rows), strong, stacked))


def folded(title: object, part: object) -> Markup:
    """Return content that opens with a click on its title."""
    return _macro("folded", title, caller=lambda: escape(part))


def picture(narrow: Markup, broad: Markup, description: object) -> Markup:
    """Return one picture for phones and one for wide windows, with a description in words."""
    return _macro("picture", narrow, broad, description)


def _macro(name: str, *arguments: object, **options: object) -> Markup:
    macro: Any = getattr(_environment().get_template("macros.html").module, name)
    return Markup(str(macro(*arguments, **options)).strip("\n"))
