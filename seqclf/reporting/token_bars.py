"""Terminal output of an explanation: the tokens of a sequence, each with a bar for its contribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from seqclf.reporting.formatting import shortened

MOST_TOKENS = 60
HALF_WIDTH = 12  # cells of the longest bar
LONGEST_TOKEN = 60  # characters
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
    for position in strongest(read, MOST_TOKENS):
        if position > before + 1:
            console.print(f"{'…':>5}  {position - before - 1:,} more tokens")
        text = shortened(tokens[position], LONGEST_TOKEN)
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
