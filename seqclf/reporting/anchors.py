"""Anchors of the sections of a page, and the contents list that links them."""

from __future__ import annotations

import re
from typing import NamedTuple

from markupsafe import Markup

# As the macro `section` writes it. Text from data cannot look like this, because its `<` is escaped.
SECTION = re.compile(r'<section id="([^"]*)">\s*<h2>(.*?)</h2>', re.DOTALL)
ID = re.compile(r'<[^<>]*\sid="([^"]*)"')
MOST_CHARACTERS = 60


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
    return words[:MOST_CHARACTERS].strip("-") or "section"


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
