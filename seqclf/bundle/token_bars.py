"""Terminal output of an explanation: each token of a sequence with a bar for its contribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.text import Text

from seqclf.documents.formatting import shortened
from seqclf.documents.terminal import console

MAX_TOKENS = 60
HALF_WIDTH = 12  # length of the longest bar, in terminal cells
MAX_TOKEN_CHARACTERS = 60  # a token with more characters is shortened
SPACE = "␣"  # shown in place of a space that is a token of its own
SUPPORTS, OPPOSES = "blue", "dark_orange"  # colors that color-blind readers can tell apart


def show_token_bars(
    label: object,
    tokens: Sequence[str],
    contributions: Sequence[float],
    by_field: Mapping[str, Sequence[float]],
    static: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Print a line for each static field, and for each token in the order of the tokens.

    Only the `MAX_TOKENS` tokens with the largest absolute contributions to the prediction `label` are printed.
    """
    console.print(f"\nWhat each token adds to {shortened(label, 40)}, in log-odds:")
    largest = max(map(abs, [*contributions, *static.values()]), default=0.0)
    for name, value in static.items():
        console.print(_line("", value, name, largest), soft_wrap=True)
    strongest = sorted(range(len(contributions)), key=lambda position: -abs(contributions[position]))[:MAX_TOKENS]
    before = -1
    for position in [*sorted(strongest), len(contributions)]:
        if position > before + 1:
            console.print(f"{'…':>5}  {position - before - 1:,} more tokens")
        if position < len(contributions):
            console.print(token_line(position, tokens[position], contributions, by_field, largest), soft_wrap=True)
        before = position


def token_line(
    position: int, token: str, contributions: Sequence[float], by_field: Mapping[str, Sequence[float]], largest: float
) -> Text:
    """Return the line of the token at `position`. The bar of the `largest` contribution has the full length."""
    line = _line(str(position + 1), contributions[position], token, largest)
    if by_field:
        parts = ", ".join(f"{name} {values[position]:+.3f}" for name, values in by_field.items())
        line.append(f"  ({parts})", style="dim")
    return line


def _line(place: str, value: float, text: str, largest: float) -> Text:
    line = Text(f"{place:>5}  {value:+8.3f}  ")
    line.append(bar(value, largest), style=SUPPORTS if value > 0 else OPPOSES)
    return line.append(f"  {shortened(text, MAX_TOKEN_CHARACTERS) or SPACE}")


def bar(value: float, largest: float) -> str:
    """Return a bar as text, left of the axis if `value` is negative, and else right of it.

    >>> bar(1.0, 1.0), bar(-0.5, 1.0)
    ('            │████████████', '      ██████│            ')
    """
    cells = "█" * round(HALF_WIDTH * abs(value) / (largest or 1.0))
    return f"{'':{HALF_WIDTH}}│{cells:{HALF_WIDTH}}" if value >= 0 else f"{cells:>{HALF_WIDTH}}│{'':{HALF_WIDTH}}"
