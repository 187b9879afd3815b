"""Heat maps of the stages: numbers in cells, coloured by size, and hatched cells for padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seqclf.documents.blocks import HeatCell, HeatMap, HeatMaps
from seqclf.documents.formatting import shortened

MAX_CHANNELS = 8
MAX_TOKENS = 200  # maximum number of token columns in a heat map
MAX_CELLS = 4000  # maximum number of cells in all heat maps of a stage; at least one heat map is drawn
MAX_TOKEN_CHARACTERS = 14
SMALL, LARGE = 0.2, 1000.0  # numbers have 3 decimals if the largest value is below SMALL, 0 from LARGE on, else 2


class ShownBatch(NamedTuple):
    """The names of B rows and of their tokens.

    `names`: name of each row. `lengths`: (B,) number of tokens of each row. `tokens`: one list of token texts for each
    row, or `None` if tokens are vectors of numbers.
    """

    names: Sequence[str]
    lengths: np.ndarray
    tokens: Sequence[Sequence[str]] | None

    def headings(self, row: int, columns: int) -> tuple[list[str], list[str]]:
        """Return the headings and the notes of the first columns of a row.

        The headings are token texts and the notes are token numbers. If the tokens have no texts, the headings are
        token numbers and there are no notes.
        """
        numbers = [str(position + 1) for position in range(columns)]
        if self.tokens is None:
            return numbers, []
        return [shortened(token, MAX_TOKEN_CHARACTERS) or "␣" for token in self.tokens[row][:columns]], numbers


def token_maps(values: np.ndarray, batch: ShownBatch, lines: Sequence[str] | None = None) -> HeatMaps:
    """Return one heat map for each row, with a line for each channel and a column for each token.

    `values`: (B, T, D) array; positions from `batch.lengths` on are padding. `lines`: name of each channel. If `lines`
    is `None`, the heat maps show the channels that vary most.
    """
    inside = np.arange(values.shape[1]) < batch.lengths[:, None]
    channels = varying_channels(values[inside]) if lines is None else np.arange(len(lines))
    lines = [f"channel {channel + 1}" for channel in channels] if lines is None else lines
    largest = float(np.abs(values[inside][:, channels]).max(initial=0))

    def maps() -> Iterator[HeatMap]:
        for row, length in enumerate(batch.lengths.tolist()):
            columns = min(length, MAX_TOKENS)
            cells = [
                (name, [number_cell(value, largest) for value in line])
                for name, line in zip(lines, values[row, :columns][:, channels].T, strict=True)
            ]
            headings, notes = batch.headings(row, columns)
            corner = "position" if batch.tokens is None else "token"
            yield HeatMap(f"Row {batch.names[row]}", cells, headings, corner, notes, first_of(columns, length))

    return limited(maps(), len(batch.names))


def pair_maps(values: np.ndarray, batch: ShownBatch) -> HeatMaps:
    """Return one heat map for each row, with a line and a column for each token. `values`: (B, T, T) array."""
    most = int(MAX_CELLS**0.5) // 2

    def maps() -> Iterator[HeatMap]:
        for row, length in enumerate(batch.lengths.tolist()):
            shown = min(length, most)
            tokens, _ = batch.headings(row, shown)
            largest = float(values[row, :length, :length].max())
            cells = [
                (token, [number_cell(value, largest) for value in line[:shown]])
                for token, line in zip(tokens, values[row, :shown], strict=True)
            ]
            yield HeatMap(f"Row {batch.names[row]}", cells, tokens, "token reads", more=first_of(shown, length))

    return limited(maps(), len(batch.names))


def row_map(values: np.ndarray, names: Sequence[str], headings: Sequence[str], marked: Sequence[int] = ()) -> HeatMap:
    """Return one heat map with a line for each row. `values`: (B, N) array. `marked`: column of each row to frame."""
    largest = float(np.abs(values).max())
    frames = marked or [-1] * len(values)
    lines = [
        (name, [number_cell(value, largest, column == frame) for column, value in enumerate(line)])
        for name, line, frame in zip(names, values, frames, strict=True)
    ]
    return HeatMap("", lines, headings, "row")


def limited(maps: Iterable[HeatMap], count: int) -> HeatMaps:
    """Return the first heat maps, of at most `MAX_CELLS` cells together. `count`: number of all heat maps."""
    kept: list[HeatMap] = []
    cells = 0
    for heat_map in maps:
        cells += sum(len(line) for _, line in heat_map.rows)
        if kept and cells > MAX_CELLS:
            break
        kept.append(heat_map)
    return HeatMaps(kept, count - len(kept))


def first_of(shown: int, count: int) -> str:
    """Return a text on the tokens that are shown, or "" if all are."""
    return f"the first {shown} of {count:,} tokens" if shown < count else ""


def varying_channels(vectors: np.ndarray) -> np.ndarray:
    """Return the ascending indices of the `MAX_CHANNELS` channels of `vectors` (N, D) that vary most.

    >>> varying_channels(np.array([[0.0] * 8 + [1.0, 5.0], [0.0] * 8 + [2.0, 5.0]])).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8]
    """
    return np.sort(np.argsort(-vectors.std(axis=0), kind="stable")[:MAX_CHANNELS])


def number_cell(value: float, largest: float, mark: bool = False) -> HeatCell:
    """Return the heat-map cell of a number. `largest`: absolute value that gets the strongest colour.

    >>> number_cell(-0.5, 2.0)
    HeatCell(text='-0.50', share=0.25, kind='down', mark=False)
    """
    share = abs(float(value)) / largest if largest else 0.0
    digits = 3 if largest < SMALL else 2 if largest < LARGE else 0
    text = f"{value:.{digits}f}"
    text = text.removeprefix("-") if float(text) == 0 else text
    return HeatCell(text, share, "down" if value < 0 else "up", mark)
