"""Drawings of trees as SVG, with the root at the top and one line of nodes for each depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from seqclf.documents.formatting import shortened
from seqclf.walkthrough.stages import TreeLevels

MAX_NODES, MAX_LEVELS, MAX_TREES = 120, 16, 4
MAX_CHILDREN = 10  # maximum number of drawn children of a node; more children do not fit the page
MAX_TOKEN_CHARACTERS = 12
CHARACTER, GAP, LEVEL, MARGIN = 7.2, 14.0, 40.0, 96.0  # pixels


class TreeDrawing(NamedTuple):
    """A drawing of one tree. `row`: index of the tree's row. `description`: content of the drawing in words."""

    row: int
    svg: Markup
    description: str


def draw_trees(levels: TreeLevels) -> list[TreeDrawing]:
    """Draw at most `MAX_TREES` trees. A tree with more than `MAX_NODES` nodes or `MAX_LEVELS` levels is skipped."""
    drawings: list[TreeDrawing] = []
    for row, length in enumerate(levels.lengths.tolist()):
        depths = levels.depths[row, :length].tolist()
        if length <= MAX_NODES and max(depths) < MAX_LEVELS and len(drawings) < MAX_TREES:
            description = f"Tree of row {row + 1} with {length} nodes on {max(depths) + 1} levels, the root at the top"
            shown = shown_nodes(levels.parents[row, :length].tolist())
            svg = _svg(shown, depths, levels.tokens[row], len(levels.order))
            drawings.append(TreeDrawing(row, svg, description))
    return drawings


class ShownNodes(NamedTuple):
    """The drawn nodes of a tree.

    `nodes`: ascending indices of the drawn nodes. `parents`: position in `nodes` of the parent of each node, -1 for the
    root. `left_out`: dict placeholder node → number of siblings that the placeholder replaces, itself included.
    """

    nodes: list[int]
    parents: list[int]
    left_out: dict[int, int]


def shown_nodes(parents: list[int], most_children: int = MAX_CHILDREN) -> ShownNodes:
    """Choose the nodes to draw.

    If a node has more than `most_children` children, only its first and last children are drawn. A placeholder node
    replaces the children between the first and the last ones. `parents`: index of the parent of each node, -1 for the
    root. Children precede their parents, so the root is the last node.

    >>> shown_nodes([5, 5, 5, 5, 5, -1], most_children=3)
    ShownNodes(nodes=[0, 1, 4, 5], parents=[3, 3, 3, -1], left_out={1: 3})
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    nodes, left_out = [], {}
    waiting = [len(parents) - 1]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        below = children[node] if node not in left_out else []
        if len(below) > most_children:
            first, last = most_children // 2, len(below) - (most_children - 1) // 2
            left_out[below[first]] = last - first
            below = [*below[: first + 1], *below[last:]]
        waiting += below
    nodes.sort()
    index = {node: position for position, node in enumerate(nodes)}
    return ShownNodes(nodes, [index.get(parents[node], -1) for node in nodes], left_out)


def node_positions(parents: list[int], widths: list[float]) -> list[float]:
    """Return the horizontal centre of each node, in pixels.

    Leaves are placed side by side, and an inner node is centred above its first and last child. `parents`: index of the
    parent of each node, -1 for the root. Children precede their parents, so the root is the last node. `widths`: width
    of each node's text in pixels.

    >>> node_positions([2, 2, -1], [10.0, 10.0, 10.0])
    [5.0, 29.0, 17.0]
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    # A wide parent widens its children in equal parts, so that neighbouring parents do not overlap.
    rooms = list(widths)
    for node in reversed(range(len(parents))):
        for child in children[node]:
            rooms[child] = max(rooms[child], rooms[node] / len(children[node]))
    middles = [0.0] * len(parents)
    right = 0.0
    stack = [(len(parents) - 1, False)]
    while stack:
        node, is_done = stack.pop()
        if not children[node]:
            middles[node] = right + rooms[node] / 2
            right += rooms[node] + GAP
        elif is_done:
            middles[node] = (middles[children[node][0]] + middles[children[node][-1]]) / 2
        else:
            stack += [(node, True), *((child, False) for child in reversed(children[node]))]
    return middles


def _svg(shown: ShownNodes, depths_of_all: list[int], tokens: Sequence[str], steps: int) -> Markup:
    """Draw one tree as an `svg` element.

    `steps`: number of levels of the deepest tree in the batch. The nodes at depth d are computed in step `steps` - d.
    """
    parents = shown.parents
    depths = [depths_of_all[node] for node in shown.nodes]
    texts = [
        f"… {shown.left_out[node]} more"
        if node in shown.left_out
        else shortened(tokens[node], MAX_TOKEN_CHARACTERS) or "␣"
        for node in shown.nodes
    ]
    kinds = ["more" if node in shown.left_out else "node" for node in shown.nodes]
    widths = [CHARACTER * len(text) + 8 for text in texts]
    middles = [MARGIN + middle for middle in node_positions(parents, widths)]
    heights = [LEVEL * depth + LEVEL / 2 for depth in depths]
    width = max(middle + size / 2 for middle, size in zip(middles, widths, strict=True)) + 4
    height = LEVEL * (max(depths) + 1)
    parts = [_level(depth, steps - depth, width) for depth in range(max(depths) + 1)]
    parts += [
        Markup('<path class="edge" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>').format(
            middles[node], heights[node] - 10, middles[parent], heights[parent] + 10
        )
        for node, parent in enumerate(parents)
        if parent >= 0
    ]
    parts += [
        Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="20" rx="4"/>').format(
            kind, middle - size / 2, top - 10, size
        )
        + Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>').format(middle, top + 4, escape(text))
        for kind, middle, top, size, text in zip(kinds, middles, heights, widths, texts, strict=True)
    ]
    opening = Markup('<svg class="tree" width="{:.0f}" height="{:.0f}" viewBox="0 0 {:.0f} {:.0f}">').format(
        width, height, width, height
    )
    return opening + Markup("").join(parts) + Markup("</svg>")


def _level(depth: int, step: int, width: float) -> Markup:
    """Draw the background of one level, and the number of the computation step in which the level is computed."""
    shade = Markup('<rect class="band" x="0" y="{:.0f}" width="{:.0f}" height="{:.0f}"/>').format(
        LEVEL * depth, width, LEVEL
    )
    text = Markup('<text class="step" x="4" y="{:.1f}">step {}</text>').format(LEVEL * depth + LEVEL / 2 + 4, step)
    return (shade if depth % 2 else Markup("")) + text
