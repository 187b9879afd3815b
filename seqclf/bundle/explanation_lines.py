"""Terminal output of an explanation: the tokens of a sequence, each with a bar for its contribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from seqclf.data.encoding.kinds.tree import INNER
from seqclf.data.encoding.trees import PARTIAL, phrase
from seqclf.documents.formatting import shortened

MAX_TOKENS = 60
HALF_WIDTH = 12  # cells of the longest bar
MAX_TOKEN_CHARACTERS = 60  # characters
SPACE = "␣"  # a token that is blank, of character tokenizers
EIGHTHS = " ▏▎▍▌▋▊▉█"
SUPPORTS, OPPOSES = "blue", "dark_orange"  # which the color-blind can tell apart


def show_token_bars(
    label: object,
    tokens: Sequence[str],
    contributions: Sequence[float | None],
    by_field: Mapping[str, Sequence[float | None]],
) -> None:
    """Print a line for each token, of a long sequence those with the largest contributions, in their order.

    `contributions`: of each token to the prediction `label`, None for the last ones that the model did not read.
    `by_field`: field → those of the field.
    """
    read = [value for value in contributions if value is not None]
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    console.print(f"\nWhat each token adds to {shortened(label, 40)}, in log-odds:")
    largest = max(map(abs, read), default=0.0)
    before = -1
    for position in strongest(read, MAX_TOKENS):
        if position > before + 1:
            console.print(f"{'…':>5}  {position - before - 1:,} more tokens")
        text = shortened(tokens[position], MAX_TOKEN_CHARACTERS)
        console.print(bar_line(position, text, read, by_field, largest), soft_wrap=True)
        before = position
    if before < len(read) - 1:
        console.print(f"{'…':>5}  {len(read) - 1 - before:,} more tokens")
    if len(read) < len(tokens):
        console.print(f"{'…':>5}  {len(tokens) - len(read):,} tokens that the model did not read")


def bar_line(
    position: int,
    text: str,
    contributions: Sequence[float],
    by_field: Mapping[str, Sequence[float | None]],
    largest: float,
) -> Text:
    """Return the line of the token at `position`. `largest`: absolute contribution of the longest bar."""
    value = contributions[position]
    line = Text(f"{position + 1:>5}  {value:+8.3f}  ")
    line.append(bar(value, largest), style=SUPPORTS if value > 0 else OPPOSES)
    line.append(f"  {text or SPACE}")
    if by_field:
        parts = ", ".join(f"{name} {values[position]:+.3f}" for name, values in by_field.items())
        line.append(f"  ({parts})", style="dim")
    return line


def strongest(contributions: Sequence[float], most: int) -> list[int]:
    """Positions of the `most` largest absolute contributions, ascending.

    >>> strongest([0.1, -2.0, 0.5], 2)
    [1, 2]
    """
    order = sorted(range(len(contributions)), key=lambda position: -abs(contributions[position]))
    return sorted(order[:most])


def bar(value: float, largest: float) -> str:
    """A bar to the left of an axis for a negative value, to the right for a positive one.

    >>> bar(1.0, 1.0), bar(-0.5, 1.0)
    ('            │████████████', '      ██████│            ')
    """
    eighths = round(8 * HALF_WIDTH * abs(value) / largest) if largest else 0
    cells = EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8] * (eighths % 8 > 0)
    if value >= 0:
        return f"{'':{HALF_WIDTH}}│{cells:{HALF_WIDTH}}"
    # There are no blocks that fill a cell from the right, so negative bars end at a half or a full cell.
    cells = "▐" * (eighths % 8 >= 4) + EIGHTHS[8] * (eighths // 8)
    return f"{cells:>{HALF_WIDTH}}│{'':{HALF_WIDTH}}"


# Terminal output of an explained tree: its nodes from the root down, each with a bar for its contribution.

MAX_INDENTS = 20
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
    shown = strongest(contributions, MAX_TOKENS)
    largest = max(map(abs, contributions), default=0.0)
    for node, depth, text in tree_lines(tokens, parents, shown):
        indent = "  " * min(depth, MAX_INDENTS)
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
            yield TreeLine(node, depth, shortened(_text(tokens, children, node), MAX_TOKEN_CHARACTERS))
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
