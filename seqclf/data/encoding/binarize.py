"""Trees whose nodes have at most two children, for compositions that read a left and a right child."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqclf.data.encoding.tree_parser import Tree

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
