"""Parser of trees in bracketed text, such as `(3 (2 The) (2 Rock))` of a treebank or `[MAX 2 [MIN 4 7 ] ]`.

A bracket opens a node. The word after it is the node's tag; further words and nodes are its children.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.schema.casts import SHOWN_CHARACTERS
from seqclf.data.schema.cell_types import MISSING_WORDS
from seqclf.data.schema.problems import BY_SPACES

WORDS = re.compile(r"[()\[\]]|[^\s()\[\]]+")
CLOSES = {")": "(", "]": "["}


class Tree(NamedTuple):
    """The nodes of a tree in postorder: children come before their parents, and the root comes last.

    `tokens`, `tags`: word and tag of each node, an empty text without one. `parents`: (nodes,) int32, -1 for the root.
    """

    tokens: list[str]
    tags: list[str]
    parents: np.ndarray


@dataclass(slots=True)
class _OpenNode:
    """`tag`: None until it is known. `children`: their indices."""

    bracket: str
    tag: str | None = None
    children: list[int] = field(default_factory=list)


class MalformedError(ValueError):
    """Error for a text that is not a tree. Users see the name of the column before the message."""


def parse(text: str, tagged_words: bool = True) -> Tree:
    """Parse a tree in bracketed text. Raises MalformedError if the text is not a tree.

    A word without brackets is a leaf. With `tagged_words`, as in treebanks, `(2 The)` is the leaf `The` with the tag 2,
    otherwise a node with the tag 2 and the child `The`.

    >>> tree = parse("(3 (2 The) (2 Rock))")
    >>> tree.tokens, tree.tags, tree.parents.tolist()
    (['The', 'Rock', ''], ['2', '2', '3'], [2, 2, -1])
    """
    tokens: list[str] = []
    tags: list[str] = []
    parents: list[int] = []
    # A stack, because trees may be deeper than Python's. The children of the first entry are the roots.
    open_nodes = [_OpenNode("", "")]

    def append(token: str, tag: str, children: list[int]) -> None:
        for child in children:
            parents[child] = len(tokens)
        open_nodes[-1].children.append(len(tokens))
        tokens.append(token)
        tags.append(tag)
        parents.append(-1)

    for word in WORDS.findall(text):
        node = open_nodes[-1]
        if word in "([":
            node.tag = node.tag or ""  # a node whose first child is a node has no tag
            open_nodes.append(_OpenNode(word))
        elif word in ")]":
            if not node.bracket:
                raise MalformedError(f"is not a tree: '{word}' closes nothing; balance the brackets")
            if node.bracket != CLOSES[word]:
                raise MalformedError(f"is not a tree: '{word}' cannot close '{node.bracket}'; balance the brackets")
            if not node.children and not node.tag:
                raise MalformedError("is not a tree: a node is empty; remove its brackets")
            open_nodes.pop()
            if not node.children:
                append(node.tag or "", "", [])
            elif tagged_words and node.tag and len(node.children) == 1 and tokens[-1] and not tags[-1]:
                # The node has only one child, a word without a tag. The node and its word become one leaf with a tag.
                tags[-1] = node.tag
                open_nodes[-1].children.append(len(tokens) - 1)
            else:
                append("", node.tag or "", node.children)
        elif node.tag is None:
            node.tag = word
        else:
            append(word, "", [])
    if open_nodes[-1].bracket:
        raise MalformedError(f"is not a tree: '{open_nodes[-1].bracket}' is never closed; balance the brackets")
    if len(open_nodes[0].children) != 1:
        raise MalformedError(f"is not a tree: has {len(open_nodes[0].children)} roots; put one bracket around all")
    return Tree(tokens, tags, np.array(parents, np.int32))


# Trees that are written as lists: tokens, the index of each node's parent, and optionally labels.

LISTS = ("tokens", "parents", "labels")  # names of the lists, in the order of a field's columns
NO_LISTS = "is not a tree: give a list of tokens and a list of whole numbers, their parents"
WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,18})([.]0*)?")  # an integer of 18 digits always fits into 64 bits


def parse_indexed(text: str) -> Tree:
    """Parse a tree that is a JSON object of lists, in any order of nodes. Raises MalformedError if they are no tree.

    `parents` holds the index of each node's parent from 0; null, NaN or -1 for the root. Children stay in order.

    >>> tree = parse_indexed('{"tokens": ["is", "It", "good"], "parents": [-1, 0, 0]}')
    >>> tree.tokens, tree.parents.tolist()
    (['It', 'good', 'is'], [2, 2, -1])
    """
    try:
        lists = json.loads(text)
        tokens, parents = lists["tokens"], lists["parents"]
        labels = lists.get("labels", [""] * len(tokens))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise MalformedError(NO_LISTS) from None
    for name, values in zip(LISTS, (tokens, parents, labels), strict=True):
        if isinstance(values, str):
            hint = f"write lists as [a, b], or name what separates them: {BY_SPACES}"
            raise MalformedError(f"is not a tree: its {name} are the text {shown(values)}; {hint}")
        if not isinstance(values, list):
            raise MalformedError(NO_LISTS)
    if not tokens:
        raise MalformedError("is not a tree: has no nodes; remove the row")
    if not len(tokens) == len(parents) == len(labels):
        sizes = f"{len(tokens)} tokens, {len(parents)} parents" + (f", {len(labels)} labels" * ("labels" in lists))
        raise MalformedError(f"is not a tree: has {sizes}; give as many of each")
    parents = [_index(parent, node) for node, parent in enumerate(parents)]
    order = _children_first(parents)
    ranks = {node: rank for rank, node in enumerate(order)}
    return Tree(
        [_text(tokens[node]) for node in order],
        [_text(labels[node]) for node in order],
        np.array([ranks.get(parents[node], -1) for node in order], np.int32),
    )


def _index(parent: Any, node: int) -> int:
    """Return the index of a node's parent, -1 if it is missing. Raises MalformedError if it is no integer."""
    if type(parent) is int:  # not bool, which is a subclass of int
        return parent
    word = "" if parent is None else str(parent).strip()  # pandas writes NaN for null, and 1.0 for 1
    number = WHOLE_NUMBER.fullmatch(word)
    if number is not None:
        return int(number[1])
    if word.lower() in MISSING_WORDS:
        return -1
    remedy = "give whole numbers, which count from 0, and the root -1"
    raise MalformedError(f"is not a tree: the parent of node {node} is {shown(parent)}; {remedy}")


def shown(value: Any) -> str:
    """Return the first characters of the `repr` of a value, which errors quote."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _children_first(parents: Sequence[int]) -> list[int]:
    """Return the indices of all nodes in postorder. Raises MalformedError unless the nodes form one tree."""
    children: list[list[int]] = [[] for _ in parents]
    roots: list[int] = []
    for node, parent in enumerate(parents):
        if not -1 <= parent < len(parents):
            remedy = f"of {len(parents)} nodes; count from 0, and give the root -1"
            raise MalformedError(f"is not a tree: the parent of node {node} is {shown(parent)}, {remedy}")
        (roots if parent == -1 else children[parent]).append(node)
    if len(roots) > 1:
        raise MalformedError(f"is not a tree: nodes {roots[0]} and {roots[1]} have no parent; join them under one root")
    if not roots:
        raise MalformedError("is not a tree: no node is the root; count from 0, and give the root -1")
    # From the root down, the last child first: in the reversed order, every node comes after its children.
    order, waiting = [], roots
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += children[node]
    if len(order) < len(parents):
        node = min(set(range(len(parents))) - set(order))
        raise MalformedError(f"is not a tree: node {node} is not below the root but in a cycle or below it; remove it")
    return order[::-1]


# Binary trees are for models that combine a left and a right child.

PARTIAL = "…"  # suffix of the tokens of partial nodes; a partial node groups the first children of a node


def binarize(tree: Tree, tokens: Sequence[str]) -> tuple[Tree, list[str]]:
    """Return a tree with at most two children per node, and the tokens of its nodes.

    A node with more children gets a chain of partial nodes, whose first one has the first two children, and each
    further one the previous partial node and the next child; the node itself keeps the last of both. Partial nodes have
    no tag, and the node's token followed by `PARTIAL`. Each comes before the next child, so the first one stays left.

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
    origins: list[int] = []  # index in `tree` of each new node, -1 for a partial node

    def add(label: str, below: list[int], origin: int) -> int:
        for child in below:
            parents[child] = len(parents)
        labels.append(label)
        parents.append(-1)
        origins.append(origin)
        return len(parents) - 1

    # No recursion, because trees may be deep. In `open_nodes`, `read` holds the finished children of a node.
    open_nodes: list[tuple[int, int, list[int]]] = [(len(tokens) - 1, 0, [])]  # (node, opened children, `read`)
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
