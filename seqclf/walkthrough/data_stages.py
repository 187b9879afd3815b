"""The stages before the network: raw rows, encoded tokens and the padded batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.documents.blocks import HeatCell, HeatMap, HeatMaps, Table, Text
from seqclf.documents.formatting import NO_VALUE, label_text, printable, shortened
from seqclf.walkthrough.heat_map import first_of, tokens_that_fit
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage, shape_text

SHOWN_CHANNELS = 3  # shown channels of a number field
MAX_NAME_CHARACTERS, MAX_CELL_CHARACTERS = 24, 400
Cells = list[HeatCell | None]


def data_stages(rows: ShownRows, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> list[Stage]:
    """Return the stages before the network.

    `fields`: dict field → padded array of the batch. `lengths`: (B,) number of tokens of each row.
    """
    encoded = [
        {name: _encoded_cells(encoder, rows.inputs(row)[name]) for name, encoder in rows.encoders.items()}
        for row in range(len(rows))
    ]
    return [_raw(rows), _encoded(rows, encoded), _padded(rows, encoded, fields, lengths)]


def _raw(rows: ShownRows) -> Stage:
    # A leading space distinguishes the heading of a field from the headings row, length and label.
    columns = {"row": "text", **{f" {name}": "text" for name in rows.encoders}, "length": "number", "label": "text"}
    table = []
    for name, cells, length, label in zip(rows.names, rows.cells, rows.sequences.lengths, rows.labels, strict=True):
        texts = [shortened(cells[field], MAX_CELL_CHARACTERS) for field in rows.encoders]
        table.append([name, *texts, f"{length:,}", NO_VALUE if label is None else label_text(label)])
    text = "Each row is one sequence. Sequences have different lengths, which are counted up to data.max_length."
    return Stage("Raw rows", text, [Table(columns, table)])


def _encoded_cells(encoder: FieldEncoder, values: np.ndarray) -> list[HeatCell]:
    """Return a cell for each encoded token of a row: its id, its ids or its scaled numbers."""
    if values.dtype.kind == "f":
        more = ", …" if values.shape[1] > SHOWN_CHANNELS else ""
        return [HeatCell(", ".join(f"{value:.2f}" for value in token[:SHOWN_CHANNELS]) + more) for token in values]
    cells = []
    for ids in values.reshape(len(values), -1).tolist():
        # A token of a set has zeros after its ids.
        text = ", ".join(str(id) for id in ids if id or len(ids) == 1) or "none"
        cells.append(HeatCell(f"{text} ?", kind="unknown") if encoder.unknown_id in ids else HeatCell(text))
    return cells


def _encoded(rows: ShownRows, encoded: list[dict[str, list[HeatCell]]]) -> Stage:
    shown = tokens_that_fit(len(rows), 2 * len(rows.encoders))
    maps = []
    for row, (name, count) in enumerate(zip(rows.names, rows.sequences.lengths.tolist(), strict=True)):
        lines: list[tuple[str, Cells]] = []
        for field, texts in rows.decoded(row).items():
            tokens = [printable(shortened(token, MAX_NAME_CHARACTERS)) or "␣" for token in texts[:shown]]
            lines.append((shortened(field, MAX_NAME_CHARACTERS), [*map(HeatCell, tokens)]))
            lines.append(("encoded", [*encoded[row][field][:shown]]))
        maps.append(HeatMap(first_of(f"Row {name}", shown, count), lines))
    text = (
        "A network computes with numbers, so every token becomes one. The training rows gave each value an id, and "
        "numbers the mean and the deviation by which they are scaled. All values that were not among the training rows "
        "share one id."
    )
    unknown = sum(cell.kind == "unknown" for fields in encoded for cells in fields.values() for cell in cells)
    note = f"{unknown} {'value is' if unknown == 1 else 'values are'} unknown, with a question mark."
    return Stage("Encoded tokens", text, [Text(note) if unknown else None, HeatMaps(maps)])


def _padded(
    rows: ShownRows, encoded: list[dict[str, list[HeatCell]]], fields: Mapping[str, np.ndarray], lengths: np.ndarray
) -> Stage:
    text = (
        "A batch is one rectangle of numbers, so the rows are filled up to the longest. The lengths travel along: all "
        "later stages know which cells are real, and none reads the others. The bars show the active batch size: "
        "the rows that still have a token at each position, which are all that a packed sequence holds."
    )
    longest, first = int(lengths.max()), next(iter(rows.encoders))
    shown = min(longest, tokens_that_fit(len(rows), 1))
    lines: list[tuple[str, Cells]] = [
        (f"{name}: {length:,} token{'s' * (length > 1)}", [*row[first], *[None] * (longest - length)][:shown])
        for name, length, row in zip(rows.names, lengths.tolist(), encoded, strict=True)
    ]
    active = active_rows(lengths)[:shown].tolist()
    lines.append(("active batch size", [HeatCell(str(count), count / len(lengths), "active") for count in active]))
    headings = [str(position + 1) for position in range(shown)]
    heat_map = HeatMap(first_of(f"Encoded values of {first}", shown, longest), lines, headings, "row")
    cells, tokens = longest * len(lengths), int(lengths.sum())
    padding = f"Of {cells:,} cells {tokens:,} are tokens, and {1 - tokens / cells:.1%} are padding."
    counts = Text(f"{padding} Active batch size by position: {', '.join(map(str, active))}")
    inputs = [(name, str(array.dtype), shape_text(array)) for name, array in {**fields, "lengths": lengths}.items()]
    table = Table({"input": "text", "type": "text", "shape": "text"}, inputs, caption="The inputs of the network")
    values = np.arange(longest) < lengths[:, None]
    return Stage("Padded batch", text, [HeatMaps([heat_map]), counts, table], values, ("rows", "tokens"))


def active_rows(lengths: np.ndarray) -> np.ndarray:
    """Return (T,) counts: the number of rows that have a token at each position.

    The counts are the batch sizes of a packed sequence.

    >>> active_rows(np.array([3, 2, 4, 1])).tolist()
    [4, 3, 2, 1]
    """
    return (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)
