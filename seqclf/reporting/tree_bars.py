"""Terminal output of an explained tree: its nodes from the root down, each with a bar for its contribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console

from seqclf.data.encoding.binarize import PARTIAL
from seqclf.data.encoding.kinds.tree import INNER
from seqclf.data.encoding.phrases import phrase
from seqclf.reporting.formatting import shortened
from seqclf.reporting.token_bars import LONGEST_TOKEN, MOST_TOKENS, bar_line, strongest

MOST_INDENTS = 20
WORDLESS = (INNER, INNER + PARTIAL)


class TreeLine(NamedTuple):
    """A node of a drawn tree. `depth`: number of drawn nodes above it. `text`: its token, or the phrase below it."""

    node: int
    depth: int
    text: str


def show_tree_bars(
    label: object,
    tokens: Sequence[str],
    parents: Sequence[int],
    contributions: Sequence[float],
    by_field: Mapping[str, Sequence[float]],
) -> None:
    """Print a line for each node, of a large tree those with the largest contributions.

    `contributions`: of each node, with all below it, to the prediction `label`. `by_field`: field → those of the node
    alone. See `tree_lines`.
    """
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    alone = ", and its word alone" if by_field else ""
    console.print(f"\nWhat each node adds to {shortened(label, 40)} with all below it{alone}, in log-odds:")
    shown = strongest(contributions, MOST_TOKENS)
    largest = max(map(abs, contributions), default=0.0)
    for node, depth, text in tree_lines(tokens, parents, shown):
        indent = "  " * min(depth, MOST_INDENTS)
        console.print(bar_line(node, indent + text, contributions, by_field, largest), soft_wrap=True)
    if len(shown) < len(tokens):
        console.print(f"{'…':>5}  {len(tokens) - len(shown):,} more nodes")


def tree_lines(tokens: Sequence[str], parents: Sequence[int], shown: Sequence[int]) -> Iterator[TreeLine]:
    """Yield the `shown` nodes of a tree from the root down, children from left to right.

    `parents`: index of the parent, -1 for the root. Words of a phrase come in the order of their indices.

    >>> [(line.depth, line.text) for line in tree_lines(["bad", "film", "[NODE]"], [2, 2, -1], [0, 1, 2])]
    [(0, 'bad film'), (1, 'bad'), (1, 'film')]
    """
    is_shown = set(shown)
    children: list[list[int]] = [[] for _ in tokens]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    waiting = [(list(parents).index(-1), 0)]
    while waiting:  # not recursive, as trees may be deeper than Python's stack
        node, depth = waiting.pop()
        if node in is_shown:
            yield TreeLine(node, depth, shortened(_text(tokens, children, node), LONGEST_TOKEN))
        depth += node in is_shown
        waiting += [(child, depth) for child in reversed(children[node])]


def _text(tokens: Sequence[str], children: Sequence[Sequence[int]], node: int) -> str:
    """Return the word of a node, or those below a node without one."""
    if tokens[node] not in WORDLESS or not children[node]:
        return tokens[node]
    below = [*children[node]]
    for child in below:  # grows while it is read
        below += children[child]
    return phrase(tokens[child] for child in sorted(below) if tokens[child] not in WORDLESS)
