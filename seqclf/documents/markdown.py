"""Documents as Markdown text, for files that other tools render, such as a model card."""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqclf.documents.blocks import Alerts, Block, Code, Document, Folded, Table, Text
from seqclf.documents.formatting import shortened

MARKUP = re.compile(r"([\\`*\[\]<>&|~$]|(?<!\w)_|_(?!\w)|(?<=:)//)")  # not underscores inside words
MAX_CHARACTERS = 2000  # characters of a paragraph or a cell


def render_markdown(document: Document) -> str:
    """Return a document as Markdown: title, summary and the printed blocks of its sections.

    >>> from seqclf.documents.blocks import Section
    >>> render_markdown(Document("A", "b*c", [Section("D", [Text("e")])]))
    '# A\\n\\nb\\\\*c\\n\\n## D\\n\\ne\\n'
    """
    parts = [f"# {plain(document.title)}", plain(document.summary)]
    for section in document.sections:
        parts.append(f"## {plain(section.heading)}")
        parts += [part for block in section.printed for part in _parts(block)]
    return "\n\n".join(parts) + "\n"


def plain(value: object) -> str:
    """Return a text on one line, with Markdown and HTML characters, which labels may contain, escaped."""
    return MARKUP.sub(r"\\\1", shortened(value, MAX_CHARACTERS))


def _parts(block: Block) -> Iterator[str]:
    match block:
        case Text():
            yield plain(block.text)
        case Alerts():
            yield "\n".join(f"- {plain(line)}" for line in block.lines)
        case Code():
            yield f"```{block.language}\n{block.text}\n```"
        case Table():
            yield "\n".join(_table(block))
        case Folded():
            for inner in block.blocks:
                yield from _parts(inner)


def _table(table: Table) -> Iterator[str]:
    kept = [index for index, kind in enumerate(table.columns.values()) if kind != "bar"]
    for position, row in enumerate([list(table.columns), *table.rows]):
        yield f"| {' | '.join(plain(row[index]) for index in kept if index < len(row))} |"
        if position == 0:
            yield "|" + "---|" * len(kept)
