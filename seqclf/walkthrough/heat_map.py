"""Heat maps of the stages: numbers in cells, coloured by size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqclf.documents.blocks import Block, HeatCell, HeatMap, HeatMaps, Text
from seqclf.documents.formatting import shortened

MAX_CHANNELS = 8
MAX_CELLS = 4000  # about the maximum number of cells in all heat maps of a stage
MAX_HEADING_CHARACTERS = 14


def number_map(
    caption: str,
    lines: Sequence[str],
    values: np.ndarray,
    headings: Sequence[str],
    corner: str,
    largest: float,
) -> HeatMap:
    """Return a heat map of the numbers `values` (N, M), with N `lines` and M `headings` (see `HeatMap`).

    `largest`: absolute value that gets the strongest colour.
    """
    headings = [shortened(heading, MAX_HEADING_CHARACTERS) or "␣" for heading in headings]
    cells = [[number_cell(value, largest) for value in line] for line in values.tolist()]
    return HeatMap(caption, list(zip(lines, cells, strict=True)), headings, corner)


def row_maps(values: np.ndarray, lines: Sequence[str], names: Sequence[str], word: str) -> list[Block | None]:
    """Return a heat map of the columns of `values` (B, D) that vary most, and a text if there are others.

    `lines`: B headings of rows. `names`: D headings of columns. `word`: meaning of the columns, such as "channels".
    """
    chosen = varying_channels(values)
    shown = values[:, chosen]
    heat_map = number_map("", lines, shown, [names[index] for index in chosen], "row", float(np.abs(shown).max()))
    return [selection(len(names), word), HeatMaps([heat_map])]


def selection(count: int, word: str) -> Text | None:
    text = f"The {MAX_CHANNELS} of {count:,} {word} that vary most."
    return Text(text, soft=True, page_only=True) if count > MAX_CHANNELS else None


def number_cell(value: float, largest: float) -> HeatCell:
    """Return the heat-map cell of a number.

    >>> number_cell(-0.5, 2.0)
    HeatCell(text='-0.50', share=0.25, kind='down')
    """
    return HeatCell(f"{value:z.2f}", abs(value) / (largest or 1.0), "down" if value < 0 else "up")


def tokens_that_fit(rows: int, lines: int) -> int:
    """Return the number of tokens of a row that are shown if each of the rows has a heat map of `lines` lines.

    >>> tokens_that_fit(4, lines=8), tokens_that_fit(50, lines=1)
    (125, 80)
    """
    return max(1, MAX_CELLS // (rows * lines))


def first_of(caption: str, shown: int, count: int) -> str:
    """Return `caption` with the number of tokens that are shown, if these are not all.

    >>> first_of("Row a", 125, 1200), first_of("Row a", 125, 3)
    ('Row a: the first 125 of 1,200 tokens', 'Row a')
    """
    return f"{caption}: the first {shown} of {count:,} tokens" if shown < count else caption


def varying_channels(vectors: np.ndarray) -> np.ndarray:
    """Return the ascending indices of the `MAX_CHANNELS` channels of `vectors` (N, D) that vary most.

    >>> varying_channels(np.array([[0.0] * 8 + [1.0, 5.0], [0.0] * 8 + [2.0, 5.0]])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8]
    """
    return np.sort(np.argsort(-vectors.std(axis=0), kind="stable")[:MAX_CHANNELS])
