"""Positions of the nodes of drawn trees."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from seqclf.walkthrough.stages import TreeLevels
from seqclf.walkthrough.tree_drawing import GAP, MAX_CHILDREN, draw_trees, node_positions, shown_nodes


@st.composite
def trees(draw):
    """Parents of a tree whose children come before their parents."""
    size = draw(st.integers(1, 25))
    return [draw(st.integers(node + 1, size - 1)) for node in range(size - 1)] + [-1]


def depths_of(parents):
    depths = [0] * len(parents)
    for node in reversed(range(len(parents) - 1)):
        depths[node] = depths[parents[node]] + 1
    return depths


@given(trees(), st.data())
def test_nodes_of_a_level_do_not_overlap_and_parents_are_above_their_children(parents, data):
    widths = [float(data.draw(st.integers(10, 90))) for _ in parents]
    middles, depths = node_positions(parents, widths), depths_of(parents)
    assert min(middle - width / 2 for middle, width in zip(middles, widths, strict=True)) >= -1e-6
    for depth in set(depths):
        level = sorted((middles[node], widths[node]) for node in range(len(parents)) if depths[node] == depth)
        for (left, left_width), (right, right_width) in pairwise(level):
            assert right - right_width / 2 - (left + left_width / 2) >= GAP - 1e-6
    for node in range(len(parents)):
        children = [middles[child] for child, parent in enumerate(parents) if parent == node]
        if children:
            assert min(children) <= middles[node] <= max(children)


def test_a_shallow_tree_begins_at_a_later_step():
    levels = TreeLevels(
        np.array([[1, 2, -1], [1, -1, -1]]), np.array([[2, 1, 0], [1, 0, 3]]), np.array([3, 2]), [["a"] * 3, ["a"] * 2]
    )
    deep, shallow = draw_trees(levels)
    assert [text in deep.svg for text in ("step 1<", "step 2<", "step 3<")] == [True, True, True]
    assert [text in shallow.svg for text in ("step 1<", "step 2<", "step 3<")] == [False, True, True]


@given(trees(), st.integers(2, 4))
def test_of_many_children_the_first_and_the_last_are_drawn(parents, most):
    shown = shown_nodes(parents, most)
    assert shown.nodes[-1] == len(parents) - 1 and shown.parents[-1] == -1
    for index, node in enumerate(shown.nodes):
        children = [child for child, parent in enumerate(parents) if parent == node]
        drawn = [shown.nodes[below] for below, parent in enumerate(shown.parents) if parent == index]
        if node in shown.left_out:
            assert not drawn
        elif len(children) <= most:
            assert drawn == children
        else:
            assert len(drawn) == most and drawn[0] == children[0]
            assert sum(shown.left_out.get(child, 1) for child in drawn) == len(children)


def test_a_root_of_fifty_children_fits_the_page():
    tokens = [f"token{node:02}" for node in range(50)] + ["root"]
    levels = TreeLevels(np.array([[50] * 50 + [-1]]), np.array([[1] * 50 + [0]]), np.array([51]), [tokens])
    (drawing,) = draw_trees(levels)
    assert drawing.svg.count('class="node"') == MAX_CHILDREN and "… 41 more" in drawing.svg
    assert "token00" in drawing.svg and "token49" in drawing.svg and "token25" not in drawing.svg
    assert int(drawing.svg.split('width="')[1].split('"')[0]) < 1100
