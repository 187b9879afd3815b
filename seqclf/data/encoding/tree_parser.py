"""Bracketed text → trees: `(3 (2 The) (2 Rock))` of a treebank, `[MAX 2 [MIN 4 7 ] ]` of an expression.

A bracket, round or square, opens a node; the first word after it is the node's tag; what follows are its children,
words or nodes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

WORDS = re.compile(r"[()\[\]]|[^\s()\[\]]+")
CLOSES = {")": "(", "]": "["}


class Tree(NamedTuple):
    """Nodes in the order in which they can be computed, children before parents and the root last.

    `tokens`: the word of each node, empty for a node without one; `tags`: its tag, empty for a bare word; `parents`:
    the place of its parent, -1 for the root.
    """

    tokens: list[str]
    tags: list[str]
    parents: np.ndarray


class _Node:
    __slots__ = ("bracket", "children", "tag", "tagged")

    def __init__(self, bracket: str):
        self.bracket = bracket
        self.tag = ""
        self.tagged = False
        self.children: list[int] = []


class MalformedError(ValueError):
    """A text that is no tree; the message says why, as a continuation of the column's name."""


def parse(text: str, tagged_words: bool = True) -> Tree:
    """Raises MalformedError. A text of one word and no bracket is a tree of one leaf.

    With `tagged_words`, as in treebanks, `(2 The)` is the leaf `The` with the tag 2, not a node with a leaf below.
    """
    tokens: list[str] = []
    tags: list[str] = []
    parents: list[int] = []
    open_nodes: list[_Node] = []
    roots = 0

    def close(token: str, tag: str, children: list[int]) -> None:
        nonlocal roots
        place = len(tokens)
        tokens.append(token)
        tags.append(tag)
        parents.append(-1)
        for child in children:
            parents[child] = place
        if open_nodes:
            open_nodes[-1].children.append(place)
        else:
            roots += 1

    for word in WORDS.findall(text):
        if word in "([":
            if open_nodes:
                open_nodes[-1].tagged = True
            open_nodes.append(_Node(word))
        elif word in ")]":
            if not open_nodes or open_nodes[-1].bracket != CLOSES[word]:
                raise MalformedError(f"is no tree: '{word}' closes nothing; balance the brackets")
            node = open_nodes.pop()
            if not node.children and not node.tag:
                raise MalformedError("is no tree: a node is empty; remove its brackets")
            if not node.children:
                close(node.tag, "", [])
            elif tagged_words and node.tag and len(node.children) == 1 and tokens[-1] and not tags[-1]:
                tags[-1] = node.tag
                if open_nodes:
                    open_nodes[-1].children.append(len(tokens) - 1)
                else:
                    roots += 1
            else:
                close("", node.tag, node.children)
        elif open_nodes and not open_nodes[-1].tagged:
            open_nodes[-1].tag, open_nodes[-1].tagged = word, True
        else:
            close(word, "", [])
    if open_nodes:
        raise MalformedError(f"is no tree: '{open_nodes[-1].bracket}' is never closed; balance the brackets")
    if roots != 1:
        raise MalformedError(f"is no tree: has {roots} roots; put one bracket around all")
    return Tree(tokens, tags, np.array(parents, np.int32))


def problem(text: str) -> str | None:
    """Why a text is no tree, or None."""
    try:
        parse(text)
    except MalformedError as error:
        return str(error)
    return None
