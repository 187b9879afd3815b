"""Typed blocks (text, tables, figures) that an HTML page and the terminal both render.

Figures, templates and texts with `page_only` appear only on HTML pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from seqclf.documents.formatting import head_and_tail

if TYPE_CHECKING:
    from markupsafe import Markup

LONG_TABLE = 25  # number of rows; a page folds a longer table if `Table.folded` is set


@dataclass(frozen=True)
class Text:
    """A paragraph. `soft`: True for a pale colour on a page. `style`: Rich style in the terminal."""

    text: str
    soft: bool = False
    style: str = ""
    page_only: bool = False


@dataclass(frozen=True)
class Alerts:
    """A box with one line for each problem, with a Rich style in the terminal."""

    lines: Sequence[str]
    style: str = "yellow"


@dataclass(frozen=True)
class Table:
    """A table. The first cell of each row is the heading of the row.

    `columns`: dict heading → "text", "number" or "bar"; without a heading, use the keys "" and " ". Cells of a "bar"
    column are fractions of its width; the terminal omits it, because another column shows the same numbers. `caption`:
    a line above the table. `strong`: index of the row that is printed in bold. `folded`: title under which a page hides
    more than `LONG_TABLE` rows. `shades`: CSS class and strength (a CSS percentage) of the background of each row, on
    pages.
    """

    columns: Mapping[str, str]
    rows: Sequence[Sequence[object]]
    strong: int | None = None
    folded: str | None = None
    caption: str | None = None
    shades: Sequence[tuple[str, str]] = ()

    @property
    def label(self) -> str:
        # A name for screen readers.
        return self.caption or self.folded or f"table of {', '.join(filter(str.strip, self.columns))}"

    @property
    def is_folded(self) -> bool:
        return self.folded is not None and len(self.rows) > LONG_TABLE


def limited_table(table: Table, most: int) -> Table:
    """Return a table of at most `most` rows: the first rows, a line such as "… 20 more", and the last rows.

    >>> limited_table(Table({"": "number"}, [[row] for row in range(1000)], strong=999), 100).strong
    99
    """
    first, left_out, last = head_and_tail(table.rows, most)
    if not left_out:
        return table
    strong = table.strong
    if strong is not None and strong >= len(first):
        strong = strong - left_out + 1 if strong >= len(first) + left_out else None
    return replace(table, rows=[*first, [f"… {left_out:,} more"], *last], strong=strong)


@dataclass(frozen=True)
class Code:
    """Preformatted lines, such as a command or a file. `language`: language of the code block in Markdown."""

    text: str
    language: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure on a page, drawn as SVG. `description`: content of the figure in words."""

    drawing: Markup
    description: str


@dataclass(frozen=True)
class HeatMap:
    """A table of coloured cells on a page."""

    corner: str  # meaning of the row headings
    headings: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]  # (heading, cells); a cell is (text, strength from 0 to 1)


@dataclass(frozen=True)
class Folded:
    """Blocks that a page hides until the reader clicks `title`. A printed page shows them."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Template:
    """Content of a page alone, by a Jinja template and a JavaScript file, whose paths are in `documents/templates`."""

    name: str
    context: Mapping[str, Any] = field(default_factory=dict)
    script: str | None = None


Block: TypeAlias = Text | Alerts | Table | Code | Picture | HeatMap | Folded | Template


@dataclass(frozen=True)
class Section:
    """A heading and blocks. An entry of `blocks` that is `None` is omitted."""

    heading: str
    blocks: Sequence[Block | None] = ()

    @property
    def content(self) -> list[Block]:
        return [block for block in self.blocks if block is not None]

    @property
    def printed(self) -> list[Block]:
        """The blocks that the terminal and Markdown show."""
        texts = [block for block in self.content if not isinstance(block, Picture | Template)]
        return [block for block in texts if not (isinstance(block, Text) and block.page_only)]


@dataclass(frozen=True)
class Document:
    """A complete text for readers, such as a report.

    `lead`: bold text before the summary. `answers`: dict question → answer below it. `facts`: dict name → lines of text
    below these. `alerts`: problems, one line each, before the sections of a page, after those in the terminal.
    """

    title: str
    summary: str
    sections: Sequence[Section]
    lead: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    alerts: Sequence[str] = ()
