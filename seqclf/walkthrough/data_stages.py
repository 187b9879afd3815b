"""The stages before the network: raw rows, encoded tokens and the padded batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.field_spec import UNKNOWN_IDS
from seqclf.documents.blocks import Block, HeatCell, HeatMap, HeatMaps, Table, Text
from seqclf.documents.formatting import NO_VALUE, printable, shortened
from seqclf.walkthrough.heat_map import MAX_CELLS, MAX_TOKENS, first_of, limited
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage

SHOWN_CHANNELS = 3  # shown channels of a number field
MAX_NAME_CHARACTERS, MAX_CELL_CHARACTERS = 24, 400
MIN_COLUMNS = 16  # minimum number of token positions in the padded batch


def data_stages(rows: ShownRows, fields: Mapping[str, np.ndarray], lengths: np.ndarray) -> Iterator[Stage]:
    """Yield the stages before the network.

    `fields`: dict field → padded array of the batch. `lengths`: (B,) number of tokens of each row.
    """
    yield _raw(rows)
    encoded = [
        {name: _encoded_texts(encoder, rows.fields_of(row)[name]) for name, encoder in rows.encoders.items()}
        for row in range(len(rows))
    ]
    yield _encoded(rows, encoded)
    yield _padded(rows, encoded, fields, lengths)


def _raw(rows: ShownRows) -> Stage:
    labelled = any(label is not None for label in rows.labels)
    # A leading space distinguishes the heading of a field from the headings row, length and label.
    columns = {"row": "text", **{f" {name}": "text" for name in rows.encoders}, "length": "number"}
    columns |= {"label": "text"} if labelled else {}
    table = []
    for name, cells, length, label in zip(rows.names, rows.cells, rows.original_lengths, rows.labels, strict=True):
        texts = [shortened(cells[field], MAX_CELL_CHARACTERS) for field in rows.encoders]
        answer = [NO_VALUE if label is None else shortened(label, MAX_NAME_CHARACTERS)] if labelled else []
        table.append([name, *texts, f"{length:,}", *answer])
    text = "Each row is one sequence. Sequences have different lengths, and nothing is cut or filled up yet."
    if (rows.original_lengths > rows.sequences.lengths).any():
        text += " Tokens beyond data.max_length are left out from the next stage on."
    return Stage("Raw rows", text, [Table(columns, table)])


def _encoded_texts(encoder: FieldEncoder, values: np.ndarray) -> list[HeatCell]:
    """Return a cell for each encoded token of a row: its id, its ids or its scaled numbers."""
    kind = encoder.spec()["kind"]
    if kind == "category":
        return [_id_cell(str(id), id == UNKNOWN_IDS[kind]) for id in values.tolist()]
    if kind == "bag":
        texts = [", ".join(str(id) for id in ids if id) or "none" for ids in values.tolist()]
        unknown = (values == UNKNOWN_IDS[kind]).any(axis=1)
        return [_id_cell(text, is_unknown) for text, is_unknown in zip(texts, unknown, strict=True)]
    texts = [", ".join(f"{value:.2f}" for value in channels[:SHOWN_CHANNELS]) for channels in values]
    more = ", …" if values.shape[1] > SHOWN_CHANNELS else ""
    return [HeatCell(text + more) for text in texts]


def _id_cell(text: str, is_unknown: bool) -> HeatCell:
    return HeatCell(f"{text} ?", kind="unknown") if is_unknown else HeatCell(text)


def _encoded(rows: ShownRows, encoded: list[dict[str, list[HeatCell]]]) -> Stage:
    sentences = ["A network computes with numbers, so every token becomes one."]
    kinds = {encoder.spec()["kind"] for encoder in rows.encoders.values()}
    if kinds & {"category", "bag"}:
        sentences.append(
            "The vocabulary was learned from the training rows and gives each value an id. A value that was not among "
            "them is unknown, and all unknown values share one id."
        )
    if "number" in kinds:
        sentences.append("Numbers are scaled by the mean and the standard deviation of the training rows.")
    unknown = sum(cell.kind == "unknown" for fields in encoded for cells in fields.values() for cell in cells)

    def maps() -> Iterator[HeatMap]:
        for row, fields in enumerate(encoded):
            lines: list[tuple[str, list[HeatCell | None]]] = []
            for name, cells in fields.items():
                shown = [printable(shortened(token, MAX_NAME_CHARACTERS)) for token in rows.tokens[name][row]]
                tokens: list[HeatCell | None] = [HeatCell(token or "␣") for token in shown[:MAX_TOKENS]]
                lines += [(shortened(name, MAX_NAME_CHARACTERS), tokens), ("encoded", [*cells[:MAX_TOKENS]])]
            count = len(next(iter(fields.values())))
            yield HeatMap(f"Row {rows.names[row]}", lines, more=first_of(min(count, MAX_TOKENS), count))

    note = f"{unknown} {'value is' if unknown == 1 else 'values are'} unknown, with a question mark." if unknown else ""
    return Stage("Encoded tokens", " ".join(sentences), [limited(maps(), len(rows))], note=note)


def _padded(
    rows: ShownRows, encoded: list[dict[str, list[HeatCell]]], fields: Mapping[str, np.ndarray], lengths: np.ndarray
) -> Stage:
    longest, first = int(lengths.max()), next(iter(rows.encoders))
    padding = 1 - lengths.sum() / (len(lengths) * longest)
    text = "A batch is one rectangle of numbers. "
    if padding:
        text += (
            f"The {len(lengths)} rows are filled up to the longest, {longest} tokens, so {padding:.1%} of the "
            "cells are padding. The lengths travel along: every later stage knows which cells are real, and no stage "
            "reads the others. "
        )
    else:
        text += "All rows are of one length here, so nothing has to be filled up. "
    text += (
        "The bars show the active batch size: the rows that still have a token at each position. With packed "
        "sequences, a recurrent layer computes these rows only."
    )
    most = max(MIN_COLUMNS, min(MAX_TOKENS, MAX_CELLS // len(lengths)))
    lines: list[tuple[str, list[HeatCell | None]]] = [
        (f"{name}: {length:,} token{'s' * (length > 1)}", [*row[first], *[None] * (longest - length)][:most])
        for name, length, row in zip(rows.names, lengths.tolist(), encoded, strict=True)
    ]
    active = active_rows(lengths)[:most].tolist()
    lines.append(("active batch size", [HeatCell(str(count), count / len(lengths), "active") for count in active]))
    headings = [str(position + 1) for position in range(len(active))]
    more = f"the first {most} of {longest:,} columns" if longest > most else ""
    inputs = [
        (name, str(array.dtype), f"({', '.join(map(str, array.shape))})")
        for name, array in {**fields, "lengths": lengths}.items()
    ]
    blocks: list[Block] = [
        HeatMaps([HeatMap(f"Encoded values of {first}", lines, headings, "row", more=more)]),
        Text(f"Of {longest * len(lengths):,} cells {int(lengths.sum()):,} are tokens."),
        Table({"input": "text", "type": "text", "shape": "text"}, inputs, caption="The inputs of the network"),
    ]
    return Stage("Padded batch", text, blocks, np.arange(longest) < lengths[:, None], ("rows", "tokens"))


def active_rows(lengths: np.ndarray) -> np.ndarray:
    """Return (T,) counts: the number of rows that have a token at each position.

    The counts are the batch sizes of a packed sequence.

    >>> active_rows(np.array([3, 2, 4, 1])).tolist()
    [4, 3, 2, 1]
    """
    return (lengths[:, None] > np.arange(lengths.max())).sum(axis=0)
