"""Terminal output of an explanation: each token of a sequence with a bar for its contribution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from seqclf.data.encoding.kinds.tree import INNER
from seqclf.data.encoding.trees import PARTIAL, phrase
from seqclf.documents.formatting import shortened

MAX_TOKENS = 60
HALF_WIDTH = 12  # length of the longest bar, in terminal cells
MAX_TOKEN_CHARACTERS = 60  # a token with more characters is shortened
SPACE = "␣"  # shown in place of a space that is a token of its own
EIGHTHS = " ▏▎▍▌▋▊▉█"
SUPPORTS, OPPOSES = "blue", "dark_orange"  # colors that color-blind readers can tell apart


def show_token_bars(
    label: object,
    tokens: Sequence[str],
    contributions: Sequence[float | None],
    by_field: Mapping[str, Sequence[float | None]],
) -> None:
    """Print a line for each token, in the order of the tokens.

    For a long sequence, only the `MAX_TOKENS` tokens with the largest absolute contributions are printed.
    `contributions`: contribution of each token to the prediction `label`. A token that the model did not read has the
    contribution None. `by_field`: dict field name → contributions of the field.
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
    """Return the terminal line of the token at `position`.

    `largest`: largest absolute contribution of all tokens; its bar has the full length.
    """
    value = contributions[position]
    line = Text(f"{position + 1:>5}  {value:+8.3f}  ")
    line.append(bar(value, largest), style=SUPPORTS if value > 0 else OPPOSES)
    line.append(f"  {text or SPACE}")
    if by_field:
        parts = ", ".join(f"{name} {values[position]:+.3f}" for name, values in by_field.items())
        line.append(f"  ({parts})", style="dim")
    return line


def strongest(contributions: Sequence[float], most: int) -> list[int]:
    """Return the positions of the contributions with the largest absolute values, in ascending order.

    `most`: maximum number of positions to return.

    >>> strongest([0.1, -2.0, 0.5], 2)
    [1, 2]
    """
    order = sorted(range(len(contributions)), key=lambda position: -abs(contributions[position]))
    return sorted(order[:most])


def bar(value: float, largest: float) -> str:
    """Return a bar as text. The bar is left of the axis if `value` is negative, and else right of the axis.

    >>> bar(1.0, 1.0), bar(-0.5, 1.0)
    ('            │████████████', '      ██████│            ')
    """
    eighths = round(8 * HALF_WIDTH * abs(value) / largest) if largest else 0
    cells = EIGHTHS[8] * (eighths // 8) + EIGHTHS[eighths % 8] * (eighths % 8 > 0)
    if value >= 0:
        return f"{'':{HALF_WIDTH}}│{cells:{HALF_WIDTH}}"
    # Unicode has no eighth blocks that fill a cell from the right, so a negative bar is rounded to half cells.
    cells = "▐" * (eighths % 8 >= 4) + EIGHTHS[8] * (eighths // 8)
    return f"{cells:>{HALF_WIDTH}}│{'':{HALF_WIDTH}}"


# Terminal output of an explained tree: one line per node, from the root down, with a bar for its contribution.

MAX_INDENTS = 20
WORDLESS = (INNER, INNER + PARTIAL)


class TreeLine(NamedTuple):
    """A printed node of a tree.

    `depth`: number of printed ancestors of the node. `text`: word of the node. If the node has no word, `text` joins
    the words of its descendants.
    """

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
    """Print a line for each node of a tree (see `tree_lines`).

    For a large tree, only the `MAX_TOKENS` nodes with the largest absolute contributions are printed. `contributions`:
    contribution of each subtree (a node with its descendants) to the prediction `label`. `by_field`: dict field name →
    contribution of each node without its descendants.
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
    """Yield a line for each node in `shown`. A parent comes before its children, and children go from left to right.

    `parents`: index of each node's parent, -1 for the root.

    >>> [(line.depth, line.text) for line in tree_lines(["bad", "film", "[NODE]"], [2, 2, -1], [0, 1, 2])]
    [(0, 'bad film'), (1, 'bad'), (1, 'film')]
    """
    is_shown = set(shown)
    children: list[list[int]] = [[] for _ in tokens]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    waiting = [(list(parents).index(-1), 0)]
    while waiting:  # not recursive, because trees may be deeper than Python's stack
        node, depth = waiting.pop()
        if node in is_shown:
            yield TreeLine(node, depth, shortened(_text(tokens, children, node), MAX_TOKEN_CHARACTERS))
        depth += node in is_shown
        waiting += [(child, depth) for child in reversed(children[node])]


def _text(tokens: Sequence[str], children: Sequence[Sequence[int]], node: int) -> str:
    """Return the word of a node, or the words of its descendants if the node has no word."""
    if tokens[node] not in WORDLESS or not children[node]:
        return tokens[node]
    below = [*children[node]]
    for child in below:  # the list grows during the loop
        below += children[child]
    return phrase(tokens[child] for child in sorted(below) if tokens[child] not in WORDLESS)
