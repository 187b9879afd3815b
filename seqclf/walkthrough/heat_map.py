"""Heat maps of the stages: numbers in cells, coloured by size, and hatched cells for padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqclf.documents.blocks import HeatCell, HeatMap, HeatMaps
from seqclf.documents.formatting import shortened
from seqclf.walkthrough.stages import ClassScores, RowVectors, TokenPairs, TokenScores, TokenVectors, channel_names

MAX_TOKENS = 200  # maximum number of token columns in a heat map
MAX_PADDING_COLUMNS = 4  # maximum number of padding columns, so that a short row has a small heat map
MAX_CELLS = 4000  # maximum number of cells in all heat maps of a stage; at least one heat map is drawn
MAX_CLASSES = 12  # maximum number of class columns
MAX_TOKEN_CHARACTERS = 14
SMALL, LARGE = 0.2, 1000.0  # numbers have 3 decimals if the largest value is below SMALL, 0 from LARGE on, else 2


def token_maps(content: TokenVectors, names: Sequence[str]) -> HeatMaps:
    """Return one heat map for each row, with a line for each channel and a column for each token."""
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
        maps.append(HeatMap(f"Row {names[row]}", rows, headings, _corner(tokens), notes, more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def score_maps(content: TokenScores, names: Sequence[str]) -> HeatMaps:
    """Return one heat map for each row, with a single line: the score of each token."""
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
        maps.append(HeatMap(f"Row {names[row]}", [line], headings, _corner(tokens), notes, more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def pair_maps(content: TokenPairs, names: Sequence[str]) -> HeatMaps:
    """Return one heat map for each row, with a line and a column for each token.

    The cell in line i and column j shows the fraction of token i's input that comes from token j.
    """
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
        maps.append(HeatMap(f"Row {names[row]}", rows, tokens, "token reads", more=more))
    return HeatMaps(maps, len(content.lengths) - len(maps))


def row_map(content: RowVectors, names: Sequence[str]) -> HeatMap:
    """Return one heat map of all rows, with a line for each row and a column for each channel."""
    values = content.values[:, content.channels]
    largest = float(np.abs(values).max())
    rows = [(names[row], [cell(value, largest) for value in line]) for row, line in enumerate(values)]
    return HeatMap("", rows, channel_names(content.channels, content.parts), "row")


def class_map(content: ClassScores, names: Sequence[str]) -> HeatMap:
    """Return one heat map of all rows, with a line for each row and a column for each class.

    Only the `MAX_CLASSES` classes with the largest values are shown.
    """
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
    return HeatMap("", rows, [shortened(content.classes[index], 20) for index in shown], "row", more=more)


def cell(value: float, largest: float, mark: bool = False) -> HeatCell:
    """Return the heat-map cell of a number. `largest`: absolute value that gets the strongest colour.

    >>> cell(-0.5, 2.0)
    HeatCell(text='-0.50', share=0.25, kind='down', mark=False)
    """
    share = abs(float(value)) / largest if largest else 0.0
    digits = 3 if largest < SMALL else 2 if largest < LARGE else 0
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return HeatCell(text, share, "down" if value < 0 else "up", mark)


def _columns(length: int, longest: int) -> tuple[int, int, str]:
    """Return the number of token columns and the number of padding columns to draw for a row.

    Also return a text about the omitted columns, or "" if none are omitted.
    """
    columns = min(length, MAX_TOKENS)
    padding = 0 if columns < length else min(longest - length, MAX_PADDING_COLUMNS)
    if columns < length:
        return columns, padding, f"the first {columns} of {length:,} tokens"
    hidden = longest - length - padding
    return columns, padding, f"and {hidden:,} more columns of padding" if hidden else ""


def _corner(tokens: Sequence[str] | None) -> str:
    return "position" if tokens is None else "token"


def _token_headings(tokens: Sequence[str] | None, columns: int, padding: int) -> tuple[list[str], list[str]]:
    """Return the headings and the notes of the columns.

    The headings are token texts and the notes are token numbers. If the tokens have no texts, the headings are token
    numbers and there are no notes.
    """
    numbers = [str(position + 1) for position in range(columns)]
    pads = ["pad"] * padding
    if tokens is None:
        return [*numbers, *pads], []
    texts = [shortened(token, MAX_TOKEN_CHARACTERS) or "␣" for token in tokens[:columns]]
    return [*texts, *pads], [*numbers, *[""] * padding]
