"""Binarised trees: at most two children, read from left to right, and nothing else changed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.encoding.trees import PARTIAL, Tree, binarize


@st.composite
def trees(draw):
    """Trees of 1 to 30 nodes, children before their parents, with a word and a tag for each node."""
    count = draw(st.integers(1, 30))
    parents = [draw(st.integers(node + 1, count - 1)) for node in range(count - 1)] + [-1]
    names = [str(node) for node in range(count)]
    return Tree(names, [f"tag {name}" for name in names], np.array(parents, np.int32))


def children_of(parents):
    children = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    return children


@given(trees())
def test_nodes_have_two_children_and_keep_theirs_in_order(tree):
    binary, tokens = binarize(tree, tree.tokens)
    children = children_of(binary.parents.tolist())

    def unfold(node):
        if not tokens[node].endswith(PARTIAL):
            return [node]
        return [leaf for child in children[node] for leaf in unfold(child)]

    assert all(parent > node for node, parent in enumerate(binary.parents[:-1])) and binary.parents[-1] == -1
    assert max(map(len, children)) <= 2
    partial = [node for node, token in enumerate(tokens) if token.endswith(PARTIAL)]
    kept = {node: token for node, token in enumerate(tokens) if node not in partial}
    # A chain of partial nodes folded back gives the children of the node that was split.
    folded = {kept[node]: [kept[leaf] for child in children[node] for leaf in unfold(child)] for node in kept}
    names = tree.tokens
    original = children_of(tree.parents.tolist())
    assert folded == {names[node]: [names[child] for child in below] for node, below in enumerate(original)}
    assert all(binary.tokens[node] == name and binary.tags[node] == f"tag {name}" for node, name in kept.items())
    assert all(binary.tokens[node] == binary.tags[node] == "" for node in partial)
    assert all(tokens[node] == tokens[binary.parents[node]].removesuffix(PARTIAL) + PARTIAL for node in partial)


def test_a_node_of_many_thousand_children_becomes_a_chain():
    count = 20_000
    wide = Tree(["x"] * count, [""] * count, np.array([count - 1] * (count - 1) + [-1], np.int32))
    binary, _ = binarize(wide, wide.tokens)
    assert len(binary.parents) == 2 * (count - 1) - 1
