"""Heat maps as tables: numbers in cells whose colour says how large they are, and hatched cells for padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqclf.documents.formatting import shortened
from seqclf.walkthrough.stages import ClassScores, RowVectors, TokenPairs, TokenScores, TokenVectors, channel_names

MAX_TOKENS = 200  # columns of a heat map
MAX_PADDING_COLUMNS = 4  # columns, so that a short row beside a long one stays small
MAX_CELLS = 4000  # of all heat maps of a stage; at least one is drawn
MAX_CLASSES = 12  # columns
MAX_TOKEN_CHARACTERS = 14
SMALL, LARGE = 0.2, 1000.0  # largest value of a stage, below and from which numbers have more or no decimals


class Cell(NamedTuple):
    """A number, and its share of the largest one of the stage as a CSS length. `sign`: the class `up` or `down`."""

    text: str
    share: str
    sign: str
    mark: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A table of cells. `rows`: heading and cells, None for padding. `headings`: of the columns.

    `corner`: what the headings are. `notes`: below them, such as the position of a token. `more`: what is left out at
    the end, "" if nothing is.
    """

    caption: str
    corner: str
    headings: Sequence[str]
    notes: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    more: str = ""


class HeatMaps(NamedTuple):
    """The heat maps of a stage, and how many rows have none."""

    maps: list[HeatMap]
    left_out: int

    @property
    def has_padding(self) -> bool:
        """True if a cell is padding."""
        return any(cell is None for cell in self._cells())

    @property
    def has_negative(self) -> bool:
        """True if a number is below 0."""
        return any(cell is not None and cell.sign == "down" for cell in self._cells())

    def _cells(self) -> Iterator[Cell | None]:
        return (cell for one in self.maps for _, cells in one.rows for cell in cells)


def token_maps(content: TokenVectors, names: Sequence[str]) -> HeatMaps:
    """Return a heat map for each row: channels by tokens. `names`: of the rows."""
    inside = np.arange(content.values.shape[1]) < content.lengths[:, None]
    largest = float(np.abs(content.values[inside][:, content.channels]).max(initial=0))
    maps: list[HeatMap] = []
    for row, length in enumerate(content.lengths.tolist()):
        columns, padding, more = _columns(length, content.values.shape[1])
        if maps and (len(maps) + 1) * (columns + padding) * len(content.channels) > MAX_CELLS:
            break
        tokens = None if content.tokens is None else content.tokens[row]
        values = content.values[row, :columns][:, content.channels].T
        rows = [
            (name, [*(cell(value, largest) for value in line), *[None] * padding])
            for name, line in zip(channel_names(content.channels, content.parts), values, strict=True)
        ]
        headings, notes = _token_headings(tokens, columns, padding)
        maps.append(HeatMap(f"Row {names[row]}", _corner(tokens), headings, notes, rows, more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def score_maps(content: TokenScores, names: Sequence[str]) -> HeatMaps:
    """Return a heat map of one line for each row."""
    largest = float(np.nanmax(np.abs(content.values)))
    maps: list[HeatMap] = []
    cells_drawn = 0
    for row, length in enumerate(content.lengths.tolist()):
        columns, padding, more = _columns(length, content.values.shape[1])
        cells_drawn += columns + padding
        if maps and cells_drawn > MAX_CELLS:
            break
        marked = None if content.marked is None else int(content.marked[row])
        cells = [
            cell(value, largest, position == marked) for position, value in enumerate(content.values[row, :columns])
        ]
        tokens = None if content.tokens is None else content.tokens[row]
        headings, notes = _token_headings(tokens, columns, padding)
        if marked is not None and marked < columns:
            notes = [f"{note}: {content.marks[row]}" if index == marked else note for index, note in enumerate(notes)]
        line = (content.name, [*cells, *[None] * padding])
        maps.append(HeatMap(f"Row {names[row]}", _corner(tokens), headings, notes, [line], more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def pair_maps(content: TokenPairs, names: Sequence[str]) -> HeatMaps:
    """Return a heat map for each row: the tokens that read by those that are read."""
    maps: list[HeatMap] = []
    cells = 0
    for row, length in enumerate(content.lengths.tolist()):
        shown = min(length, int(MAX_CELLS**0.5) // 2)
        cells += shown * shown
        if maps and cells > MAX_CELLS:
            break
        values = content.values[row, :shown, :shown]
        largest = float(content.values[row, :length, :length].max())
        tokens, _ = _token_headings(None if content.tokens is None else content.tokens[row], shown, 0)
        rows = [(tokens[i], [cell(value, largest) for value in values[i]]) for i in range(shown)]
        more = f"the first {shown} of {length:,} tokens" if shown < length else ""
        maps.append(HeatMap(f"Row {names[row]}", "token reads", tokens, [], rows, more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def row_map(content: RowVectors, names: Sequence[str]) -> HeatMap:
    """Return a heat map with a line for each row: rows by channels."""
    values = content.values[:, content.channels]
    largest = float(np.abs(values).max())
    rows = [(names[row], [cell(value, largest) for value in line]) for row, line in enumerate(values)]
    return HeatMap("", "row", channel_names(content.channels, content.parts), [], rows)


def class_map(content: ClassScores, names: Sequence[str]) -> HeatMap:
    """Return a heat map with a line for each row: rows by classes, of many those with the largest values."""
    count = len(content.classes)
    order = np.argsort(-content.values.max(axis=0), kind="stable")[:MAX_CLASSES]
    shown = np.sort(order)
    values = content.values[:, shown]
    largest = float(np.abs(values).max())
    rows = [
        (
            names[row],
            [cell(value, largest, shown[i] == content.predicted[row]) for i, value in enumerate(line)],
        )
        for row, line in enumerate(values)
    ]
    more = f"the {len(shown)} of {count:,} classes with the largest values" if len(shown) < count else ""
    return HeatMap("", "row", [shortened(content.classes[index], 20) for index in shown], [], rows, more)


def cell(value: float, largest: float, mark: bool = False) -> Cell:
    """Return a cell. `largest`: the absolute value of the strongest colour.

    >>> cell(-0.5, 2.0)
    Cell(text='-0.50', share='25%', sign='down', mark=False)
    """
    share = abs(float(value)) / largest if largest else 0.0
    digits = 3 if largest < SMALL else 2 if largest < LARGE else 0
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return Cell(text, f"{100 * share:.0f}%", "down" if value < 0 else "up", mark)


def _columns(length: int, longest: int) -> tuple[int, int, str]:
    """Return the tokens and the padding that are drawn of a row, and what is left out."""
    columns = min(length, MAX_TOKENS)
    padding = 0 if columns < length else min(longest - length, MAX_PADDING_COLUMNS)
    if columns < length:
        return columns, padding, f"the first {columns} of {length:,} tokens"
    hidden = longest - length - padding
    return columns, padding, f"and {hidden:,} more columns of padding" if hidden else ""


def _corner(tokens: Sequence[str] | None) -> str:
    return "position" if tokens is None else "token"


def _token_headings(tokens: Sequence[str] | None, columns: int, padding: int) -> tuple[list[str], list[str]]:
    """Return the headings of the columns, the tokens or their numbers, and the numbers below tokens."""
    numbers = [str(position + 1) for position in range(columns)]
    pads = ["pad"] * padding
    if tokens is None:
        return [*numbers, *pads], []
    texts = [shortened(token, MAX_TOKEN_CHARACTERS) or "␣" for token in tokens[:columns]]
    return [*texts, *pads], [*numbers, *[""] * padding]
