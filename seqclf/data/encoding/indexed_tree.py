"""Trees as lists: the token of each node, the index of its parent, and optionally its label."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqclf.data.encoding.list_encoder import BY_SPACES
from seqclf.data.encoding.tree_parser import MalformedError, Tree
from seqclf.data.reading.casts import SHOWN_CHARACTERS
from seqclf.data.schema.cell_types import MISSING_WORDS

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
