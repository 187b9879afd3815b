"""Parser of bracketed text: `(3 (2 The) (2 Rock))` of a treebank, `[MAX 2 [MIN 4 7 ] ]` of an expression.

A round or square bracket opens a node. The first word after it is the node's tag, and what follows are its children,
words or nodes.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

WORDS = re.compile(r"[()\[\]]|[^\s()\[\]]+")
CLOSES = {")": "(", "]": "["}


class Tree(NamedTuple):
    """Nodes in an order in which they can be computed: children before parents, the root last.

    `tokens`: the word of each node, empty for a node without one. `tags`: its tag, empty for a bare word. `parents`:
    (nodes,) int32 index of its parent, -1 for the root.
    """

    tokens: list[str]
    tags: list[str]
    parents: np.ndarray


class _OpenNode:
    __slots__ = ("bracket", "children", "tag", "tagged")

    def __init__(self, bracket: str):
        self.bracket = bracket
        self.tag = ""
        self.tagged = False
        self.children: list[int] = []


class MalformedError(ValueError):
    """A text that is not a tree. The message continues the name of the column."""


def parse(text: str, tagged_words: bool = True) -> Tree:
    """Parse a tree. A text of one word and no bracket is a tree of one leaf. Raises MalformedError.

    With `tagged_words`, as in treebanks, `(2 The)` is the leaf `The` with the tag 2, not a node with a leaf below.

    >>> tree = parse("(3 (2 The) (2 Rock))")
    >>> tree.tokens, tree.tags, tree.parents.tolist()
    (['The', 'Rock', ''], ['2', '2', '3'], [2, 2, -1])
    """
    builder = _Builder(tagged_words)
    for word in WORDS.findall(text):
        if word in "([":
            builder.open(word)
        elif word in ")]":
            builder.close(word)
        else:
            builder.add_word(word)
    return builder.tree()


class _Builder:
    """Parsing without recursion, as trees may be deeper than Python's stack."""

    def __init__(self, tagged_words: bool):
        self.tagged_words = tagged_words
        self.tokens: list[str] = []
        self.tags: list[str] = []
        self.parents: list[int] = []
        self.open_nodes: list[_OpenNode] = []
        self.roots = 0

    def open(self, bracket: str) -> None:
        if self.open_nodes:
            self.open_nodes[-1].tagged = True  # the first child was a node, so there is no tag
        self.open_nodes.append(_OpenNode(bracket))

    def add_word(self, word: str) -> None:
        if self.open_nodes and not self.open_nodes[-1].tagged:
            self.open_nodes[-1].tag, self.open_nodes[-1].tagged = word, True
        else:
            self._append(word, "", [])

    def close(self, bracket: str) -> None:
        if not self.open_nodes:
            raise MalformedError(f"is not a tree: '{bracket}' closes nothing; balance the brackets")
        if (opened := self.open_nodes[-1].bracket) != CLOSES[bracket]:
            raise MalformedError(f"is not a tree: '{bracket}' cannot close '{opened}'; balance the brackets")
        node = self.open_nodes.pop()
        if not node.children and not node.tag:
            raise MalformedError("is not a tree: a node is empty; remove its brackets")
        if not node.children:
            self._append(node.tag, "", [])
        elif self.tagged_words and node.tag and len(node.children) == 1 and self.tokens[-1] and not self.tags[-1]:
            # The node holds one bare word, which is the last node so far: a tagged leaf.
            self.tags[-1] = node.tag
            self._attach(len(self.tokens) - 1)
        else:
            self._append("", node.tag, node.children)

    def _append(self, token: str, tag: str, children: list[int]) -> None:
        index = len(self.tokens)
        self.tokens.append(token)
        self.tags.append(tag)
        self.parents.append(-1)
        for child in children:
            self.parents[child] = index
        self._attach(index)

    def _attach(self, index: int) -> None:
        if self.open_nodes:
            self.open_nodes[-1].children.append(index)
        else:
            self.roots += 1

    def tree(self) -> Tree:
        if self.open_nodes:
            bracket = self.open_nodes[-1].bracket
            raise MalformedError(f"is not a tree: '{bracket}' is never closed; balance the brackets")
        if self.roots != 1:
            raise MalformedError(f"is not a tree: has {self.roots} roots; put one bracket around all")
        return Tree(self.tokens, self.tags, np.array(self.parents, np.int32))
