"""Parser of bracketed text: `(3 (2 The) (2 Rock))` of a treebank, `[MAX 2 [MIN 4 7 ] ]` of an expression.

A round or square bracket opens a node. The first word after it is the node's tag, and what follows are its children,
words or nodes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.encoding.list_encoder import BY_SPACES
from seqclf.data.schema.casts import SHOWN_CHARACTERS
from seqclf.data.schema.cell_types import MISSING_WORDS

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


# Trees as lists: the token of each node, the index of its parent, and optionally its label.

LISTS = ("tokens", "parents", "labels")  # in the order of the columns of a field
NO_LISTS = "is not a tree: give a list of tokens and a list of whole numbers, their parents"
WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,18})([.]0*)?")  # 18 digits fit into 64 bits


def parse_indexed(text: str) -> Tree:
    """Parse the JSON of the lists of a tree. Nodes may come in any order. Raises MalformedError.

    Parents are indices from 0. That of the root is null, NaN or -1. The children of a node keep their order.

    >>> tree = parse_indexed('{"tokens": ["is", "It", "good"], "parents": [-1, 0, 0]}')
    >>> tree.tokens, tree.parents.tolist()
    (['It', 'good', 'is'], [2, 2, -1])
    """
    try:
        lists = json.loads(text)
        tokens, parents = lists["tokens"], lists["parents"]
        count = len(tokens)
        labels = lists.get("labels", [""] * count)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MalformedError(NO_LISTS) from None
    if not (isinstance(tokens, list) and isinstance(parents, list) and isinstance(labels, list)):
        raise MalformedError(_not_lists([tokens, parents, labels]))
    if not count:
        raise MalformedError("is not a tree: has no nodes; remove the row")
    if not count == len(parents) == len(labels):
        sizes = f"{count} tokens, {len(parents)} parents" + (f", {len(labels)} labels" if "labels" in lists else "")
        raise MalformedError(f"is not a tree: has {sizes}; give as many of each")
    parents = _indices(parents)
    order = _children_first(parents)
    ranks = {node: rank for rank, node in enumerate(order)}
    return Tree(
        [_text(tokens[node]) for node in order],
        [_text(labels[node]) for node in order],
        np.array([ranks.get(parents[node], -1) for node in order], np.int32),
    )


def written_order(text: str) -> list[int]:
    """Return the index in the lists of each node that `parse_indexed` returns.

    >>> written_order('{"tokens": ["is", "It", "good"], "parents": [-1, 0, 0]}')
    [1, 2, 0]
    """
    return _children_first(_indices(json.loads(text)["parents"]))


def _not_lists(values: Sequence[Any]) -> str:
    """Return the reason why values are not the lists of a tree."""
    for name, value in zip(LISTS, values, strict=True):
        if isinstance(value, str):
            hint = f"write lists as [a, b], or name what separates them: {BY_SPACES}"
            return f"is not a tree: its {name} are the text {shown(value)}; {hint}"
    return NO_LISTS


def _indices(parents: Sequence[Any]) -> list[int]:
    # Most are integers. A bool is one too, but not of this type.
    return [parent if type(parent) is int else _index(parent, node) for node, parent in enumerate(parents)]


def _index(parent: Any, node: int) -> int:
    """Return the parent of a node as an integer, -1 if it is missing. Raises MalformedError."""
    index = None
    if isinstance(parent, str):
        index = _spelled(parent)
    elif parent is None or parent != parent:  # NaN, which pandas writes for null
        index = -1
    elif isinstance(parent, float) and parent.is_integer():
        index = int(parent)
    if index is None:
        raise MalformedError(
            f"is not a tree: the parent of node {node} is {shown(parent)}; give whole numbers, which count from 0, "
            "and the root -1"
        )
    return index


def _spelled(text: str) -> int | None:
    """Return the index that a text spells, -1 for a word such as NA, None for other words."""
    word = text.strip()
    number = WHOLE_NUMBER.fullmatch(word)
    if number is not None:
        return int(number[1])
    return -1 if word.lower() in MISSING_WORDS else None


def shown(value: Any) -> str:
    """Return the beginning of a value, for error messages."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _children_first(parents: Sequence[int]) -> list[int]:
    """Return the nodes so that children come before their parents. Raises MalformedError unless they form one tree."""
    children: list[list[int]] = [[] for _ in parents]
    roots: list[int] = []
    for node, parent in enumerate(parents):
        if not -1 <= parent < len(parents):
            raise MalformedError(
                f"is not a tree: the parent of node {node} is {shown(parent)}, of {len(parents)} nodes; count from "
                "0, and give the root -1"
            )
        (roots if parent == -1 else children[parent]).append(node)
    if len(roots) > 1:
        raise MalformedError(f"is not a tree: nodes {roots[0]} and {roots[1]} have no parent; join them under one root")
    if not roots:
        raise MalformedError("is not a tree: no node is the root; count from 0, and give the root -1")
    # From the root down, the last child first. Reversed, each node comes after its children.
    order, waiting = [], roots
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += children[node]
    if len(order) < len(parents):
        node = min(set(range(len(parents))) - set(order))
        raise MalformedError(f"is not a tree: node {node} is not below the root but in a cycle or below it; remove it")
    return order[::-1]


# Trees whose nodes have at most two children, for compositions that read a left and a right child.

PARTIAL = "…"  # follows the token of a node that stands for the first children of another


def binarize(tree: Tree, tokens: Sequence[str]) -> tuple[Tree, list[str]]:
    """Return a tree without nodes of more than two children, and the tokens of its nodes.

    Such a node reads its children from left to right: a chain of partial nodes takes the first two, then one more each,
    and the node itself the last one. Partial nodes have the token of the node, marked by `PARTIAL`, and no tag. They
    come before the child that follows, so that the first of two children is always the left one.

    >>> tree = Tree(["1", "2", "3", ""], ["", "", "", "SUM"], np.array([3, 3, 3, -1], np.int32))
    >>> binary, tokens = binarize(tree, ["1", "2", "3", "SUM"])
    >>> tokens, binary.parents.tolist()
    (['1', '2', 'SUM…', '3', 'SUM'], [2, 2, 4, 4, -1])
    """
    children: list[list[int]] = [[] for _ in tokens]
    for node, parent in enumerate(tree.parents.tolist()):
        if parent >= 0:
            children[parent].append(node)
    labels: list[str] = []
    parents: list[int] = []
    origins: list[int] = []  # the node of `tree`, -1 for a partial node

    def add(label: str, below: list[int], origin: int) -> int:
        for child in below:
            parents[child] = len(parents)
        labels.append(label)
        parents.append(-1)
        origins.append(origin)
        return len(parents) - 1

    # Without recursion, as trees may be deeper than Python's stack. `read`: children so far, as nodes of the new tree.
    open_nodes: list[tuple[int, int, list[int]]] = [(len(tokens) - 1, 0, [])]  # node, children opened, `read`
    while open_nodes:
        node, opened, read = open_nodes.pop()
        if opened < len(children[node]):
            if len(read) == 2:
                read = [add(tokens[node] + PARTIAL, read, -1)]
            open_nodes += [(node, opened + 1, read), (children[node][opened], 0, [])]
        else:
            index = add(tokens[node], read, node)
            if open_nodes:
                open_nodes[-1][2].append(index)
    words, tags = (["" if origin < 0 else texts[origin] for origin in origins] for texts in (tree.tokens, tree.tags))
    return Tree(words, tags, np.array(parents, np.int32)), labels


# Texts of the nodes of a tree that have no word: those of the words below them.

MAX_PHRASE_CHARACTERS = 60  # characters, after which words are left out


def subtree_sizes(parents: Sequence[int]) -> list[int]:
    """Return the number of nodes of each subtree. `parents`: of nodes in postorder, -1 for roots.

    >>> subtree_sizes([2, 2, 4, 4, -1])
    [1, 1, 3, 1, 5]
    """
    sizes = [1] * len(parents)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sizes[parent] += sizes[node]
    return sizes


def node_texts(
    tokens: Sequence[str], parents: Sequence[int], is_wordless: Sequence[bool], nodes: Sequence[int]
) -> list[str]:
    """Return the text of each of `nodes`: its token, or the words below a node without one.

    `tokens`, `parents` (see `subtree_sizes`), `is_wordless`: of all nodes of the tree. A leaf keeps its token.

    >>> node_texts(["bad", "film", "[NODE]"], [2, 2, -1], [False, False, True], [0, 2])
    ['bad', 'bad film']
    """
    sizes = subtree_sizes(parents)
    return [
        phrase(tokens[below] for below in range(node - sizes[node] + 1, node) if not is_wordless[below])
        if is_wordless[node] and sizes[node] > 1
        else tokens[node]
        for node in nodes
    ]


def phrase(words: Iterable[str]) -> str:
    """Join words, as many as fit.

    >>> phrase(["not", "bad"])
    'not bad'
    """
    text = ""
    for word in words:
        if len(text) + len(word) > MAX_PHRASE_CHARACTERS and text:
            return f"{text} …"
        text = f"{text} {word}".lstrip()
    return text
