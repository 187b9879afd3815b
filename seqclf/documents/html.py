"""HTML pages rendered from the Jinja templates in `documents/templates`, each a single file that loads no other.

Every value is escaped unless its type is `Markup`, so a label or a column name can never become HTML markup.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from seqclf.documents.blocks import Document, Section, Template, limited_table
from seqclf.documents.formatting import number, percent, probability_text, shortened, warning_lines
from seqclf.documents.svg import hue

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).parent / "templates"
SOURCES = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
POLICY = f'<meta http-equiv="Content-Security-Policy" content="{SOURCES}">'
ID = re.compile(r'<[^<>]*\sid="([^"]*)"')
MAX_CHARACTERS = 60  # characters of a section id
MAX_ROWS = 100  # rows of a table; limits a page of thousands of classes to less than a megabyte
MAX_ALERTS = 100
MAX_ALERT_CHARACTERS = 4000  # an alert may end with a long override, which the reader copies


def anchor_of(heading: str) -> str:
    """Return the HTML id of the section with a given heading.

    >>> anchor_of("Recall by class"), anchor_of("<b>?</b>"), anchor_of("?")
    ('recall-by-class', 'b-b', 'section')
    """
    words = re.sub(r"[\W_]+", "-", heading.lower()).strip("-")
    return words[:MAX_CHARACTERS].strip("-") or "section"


def render_document(document: Document) -> str:
    """Render a document as a page. The table of contents of the page links to the sections."""
    bodies = [render_body(section) for section in document.sections]
    taken = {anchor for body in bodies for anchor in ID.findall(body)}  # ids in the sections, which scripts may use
    anchors: list[str] = []
    for section in document.sections:
        first = anchor_of(section.heading)
        names = chain([first], (f"{first}-{number}" for number in count(2)))
        anchors.append(next(name for name in names if name not in taken))
        taken.add(anchors[-1])
    blocks = [block for section in document.sections for block in section.content]
    scripts = [block.script for block in blocks if isinstance(block, Template) and block.script]
    return render_page(
        "document.html",
        title=document.title,
        script="".join(map(read_template, dict.fromkeys(scripts))),
        document=document,
        alerts=warning_lines(document.alerts, MAX_ALERTS, MAX_ALERT_CHARACTERS),
        sections=list(zip(anchors, document.sections, bodies, strict=True)),
    )


def render_body(section: Section) -> Markup:
    """Render the blocks of a section as HTML markup."""
    macros: Any = environment().get_template("macros.html").module
    return Markup().join(macros.show(block) for block in section.content)


def render_template(block: Template) -> Markup:
    """Render the template of a block, which can use only the variables in `block.context`."""
    return Markup(environment().get_template(block.name).render(block.context))


def css_percent(fraction: float) -> str:
    """Return a fraction as a CSS percentage, clipped to the range from 0 to 100 %."""
    return f"{100 * min(1.0, max(0.0, fraction)):.1f}%"


def render_page(template: str, *, title: str, script: str = "", **context: Any) -> str:
    """Render a complete page. `script`: JavaScript at its end, or ""."""
    policy = POLICY
    if script:  # the page runs no script but that with this hash
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy = policy.replace("inline'\"", f"inline'; script-src 'sha256-{digest}'\"")
    shell = {"title": title, "policy": Markup(policy), "script": Markup(script)}
    return environment().get_template(template).render(**shell, **context) + "\n"


def read_template(name: str) -> str:
    # `name`: path of a template, style sheet or script in `documents/templates`.
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the Jinja environment of all templates, which escapes every value that is not `Markup`."""
    # Jinja is imported here, so that a command that writes no page does not spend time on the import.
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    templates = Environment(
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,  # a misspelt variable raises an error instead of leaving a gap in the page
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "anchor": anchor_of,
        "block_name": lambda block: type(block).__name__,
        "css_percent": css_percent,
        "hue": hue,
        "limited": lambda table: limited_table(table, MAX_ROWS),
        "number": number,
        "percent": percent,
        "render": render_template,
        "probability": probability_text,
        "shortened": shortened,
    }
    return templates
