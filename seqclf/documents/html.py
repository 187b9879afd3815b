"""HTML pages from the Jinja templates in `documents/templates`.

A page is one file that loads nothing else. Every value is escaped unless it is `Markup`, so a label or a column name
can never become markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from seqclf.documents.formatting import head_and_tail, number, percent, probability_text, shortened

if TYPE_CHECKING:
    from jinja2 import Environment


# Anchors of the sections of a page, and the contents list that links them.

# As the macro `section` writes it. Text from data cannot look like this, because its `<` is escaped.
SECTION = re.compile(r'<section id="([^"]*)">\s*<h2>(.*?)</h2>', re.DOTALL)
ID = re.compile(r'<[^<>]*\sid="([^"]*)"')
MAX_CHARACTERS = 60


class Link(NamedTuple):
    """An entry of the contents list: the id of a section and its heading."""

    anchor: str
    heading: Markup


class LinkedPage(NamedTuple):
    """The content of a page, in which no two sections have the same id, and a link to each of them."""

    content: Markup
    links: list[Link]


def anchor_of(heading: str) -> str:
    """Return the id of a section with this heading.

    >>> anchor_of("Recall by class"), anchor_of("<b>?</b>"), anchor_of("?")
    ('recall-by-class', 'b-b', 'section')
    """
    words = re.sub(r"[\W_]+", "-", heading.lower()).strip("-")
    return words[:MAX_CHARACTERS].strip("-") or "section"


def linked_sections(content: Markup) -> LinkedPage:
    """Number the ids of sections that occur again, and list the sections of a page.

    The ids of other elements stay as they are, because scripts know them.

    >>> page = linked_sections(Markup('<section id="a"><h2>A</h2></section><section id="a"><h2>A</h2></section>'))
    >>> [link.anchor for link in page.links]
    ['a', 'a-2']
    """
    links: list[Link] = []
    taken = set(ID.findall(SECTION.sub("", content)))

    def unique(match: re.Match[str]) -> str:
        anchor, number = match[1], 1
        while anchor in taken:
            number += 1
            anchor = f"{match[1]}-{number}"
        taken.add(anchor)
        links.append(Link(anchor, Markup(match[2])))
        return match[0].replace(f'id="{match[1]}"', f'id="{anchor}"', 1)

    return LinkedPage(Markup(SECTION.sub(unique, content)), links)


TEMPLATES = Path(__file__).parent / "templates"
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
OVERRIDE = re.compile(r"(\b[a-z_][\w.]*=[\w.+-]{1,30}(?<![.])(?=[\s.,:;)]|$))")  # a longer one may be broken
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
    """A table for the macro `show_table`.

    `columns`: heading → "text", "number" or "bar", whose cells are `Bar`s. Of two empty headings, write one as a space.
    The first cell of a row is its heading. `caption`: a line above the table. `strong`: index of a row in bold.
    `stacked`: on phones, cells of prose stand below each other; leave it out for numbers, which a reader compares by
    column. A table that is wider than the window scrolls in its box, and its first column stays in sight. `folded`:
    title behind which a table of more than `longest` rows is hidden at first.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[object]]
    strong: int | None = None
    stacked: bool = False
    folded: str | None = None
    caption: str | None = None
    longest: int = LONG_TABLE

    @property
    def css_class(self) -> str:
        """Classes of the style sheet. A table with bars fills the width of the page."""
        kinds = list(self.columns.values())
        # Stacked numbers could not be compared, as those of one column would not stand below each other.
        stacks = self.stacked and kinds.count("text") > 1
        return " ".join(["full"] * ("bar" in kinds) + ["stacked"] * stacks)

    @property
    def label(self) -> str:
        """Name of the table for screen readers."""
        return self.caption or self.folded or f"table of {', '.join(filter(str.strip, self.columns))}"

    @property
    def is_folded(self) -> bool:
        return self.folded is not None and len(self.rows) > self.longest


def limited_rows(rows: Sequence[Sequence[object]], most: int) -> list[Sequence[object]]:
    """Return the first rows and the last few, with a line that counts those left out, so that a page stays small.

    >>> limited_rows([["a"], ["b"], ["c"], ["d"], ["e"]], most=4)
    [['a'], ['b'], ['… 2 more'], ['e']]
    """
    first, left_out, last = head_and_tail(rows, most)
    gap = [[f"… {left_out:,} more"]] if left_out else []
    return [*first, *gap, *last]


@dataclass(frozen=True)
class Section:
    """A part of a page: a template, its variables, and the JavaScript file that it needs.

    Files are named by their path in `documents/templates`, or as `package:path` in another package. The template
    `run/table.html` shows the variables `heading`, `text` and `table`, of which the last two may be None.
    """

    template: str
    context: Mapping[str, Any] = field(default_factory=dict)
    script: str | None = None


class RenderedSection(NamedTuple):
    """The markup of a section and its JavaScript, "" if it has none."""

    markup: Markup
    script: str


def render_section(section: Section) -> RenderedSection:
    """Render a section with its variables only."""
    markup = Markup(environment().get_template(section.template).render(section.context))
    return RenderedSection(markup, read_template(section.script) if section.script else "")


def render_sections(template: str, sections: Sequence[RenderedSection], *, title: str, **context: Any) -> str:
    """Render a page whose template shows the `sections` in turn. `context`: other variables of the template."""
    script = "".join(section.script for section in sections)
    parts = [section.markup for section in sections]
    return render_page(template, title=title, script=script, sections=parts, **context)


def render_page(template: str, *, title: str, script: str = "", **context: Any) -> str:
    """Render a template that extends `base.html`, which lists the sections of the page at its top.

    `script`: JavaScript at the end of the page. The page's policy names its hash, so that no other script can run.
    """
    policy = POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = policy.replace("inline'\"", f"inline'; script-src 'sha256-{digest}'\"")
    shell = {"title": title, "policy": Markup(policy), "script": Markup(script)}
    return environment().get_template(template).render(**shell, **context) + "\n"


def read_template(name: str) -> str:
    """Return the text of a template or script: a path in `documents/templates`, or `package:path`."""
    package, _, path = name.rpartition(":")
    folder = files(package) if package else TEMPLATES
    return folder.joinpath(path).read_text(encoding="utf-8")


def unbroken_overrides(text: str) -> Markup:
    """Return a sentence whose overrides of the command line stay on one line. A break would change what is copied.

    >>> unbroken_overrides("Try optimizer.lr=1e-3 or more rows")
    Markup('Try <span class="override">optimizer.lr=1e-3</span> or more rows')
    """
    parts = OVERRIDE.split(text)  # every second one is an override
    return Markup().join(
        Markup('<span class="override">{}</span>').format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )


@cache
def environment() -> Environment:
    """Return the environment of all templates. It escapes every value that is not `Markup`."""
    # Imported here, because a command that writes no page should not wait for it.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt name fails instead of leaving a gap in the page
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "anchor": anchor_of,
        "linked": linked_sections,
        "number": number,
        "percent": percent,
        "probability": probability_text,
        "shortened": shortened,
        "unbroken": unbroken_overrides,
    }
    return templates


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))


def _css_percent(share: float) -> str:
    return f"{100 * share:.1f}%"
