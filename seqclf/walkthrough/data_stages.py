"""The stages before the network: raw rows, encoded tokens, and the padded batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.kinds.tree import TreeEncoder
from seqclf.data.field_spec import UNKNOWN_IDS
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import ROW_NAME, EncodedRows, FieldTokens, PaddedBatch, RawRows, Stage, active_rows

SHOWN_CHANNELS = 3  # of a number with several


def data_stages(
    rows: ShownRows, fields: Mapping[str, np.ndarray], lengths: np.ndarray, may_pack: bool = True
) -> Iterator[Stage]:
    """Yield the stages of `rows` up to the batch that the network gets: its `fields` and `lengths` (B,).

    `may_pack`: False if the network reads no packed sequences.
    """
    yield _raw(rows)
    encoded = [[_field_tokens(rows, row, encoder) for encoder in rows.encoders.values()] for row in range(len(rows))]
    yield _encoded(rows, encoded)
    yield _padded(encoded, fields, lengths, may_pack)


def _raw(rows: ShownRows) -> Stage:
    shown = []
    names = rows.given_names
    decoded_fields: set[str] = set()
    for row in range(len(rows)):
        # What the data does not keep as it was is decoded.
        cells = rows.raw[row]
        decoded = {
            name: encoder.token_separator.join(encoder.decode(rows.fields_of(row)))
            for name, encoder in rows.encoders.items()
            if name not in cells
        }
        decoded_fields |= decoded.keys()
        shown.append({ROW_NAME: names[row], **{name: cells.get(name, decoded.get(name, "")) for name in rows.encoders}})
    text = "Each row is one sequence. Sequences have different lengths, and nothing is cut or filled up yet."
    if (rows.original_lengths > rows.sequences.lengths).any():
        text += " Tokens beyond data.max_length are left out from the next stage on."
    note = _partial_note(rows, decoded_fields)
    return Stage("Raw rows", text, RawRows(shown, rows.labels, rows.original_lengths), note=note)


def _partial_note(rows: ShownRows, fields: Set[str]) -> str:
    """The explanation of the partial nodes of some fields, "" if the rows have none."""
    for name in fields:
        encoder = rows.encoders[name]
        if isinstance(encoder, TreeEncoder):
            for row in range(len(rows)):
                of_row = rows.fields_of(row)
                partial = np.flatnonzero(encoder.partial_nodes(of_row))
                if len(partial):
                    token = encoder.decode(of_row)[partial[0]]
                    return (
                        f"{token} is a partial node: binarize makes a chain of nodes with two children from a node "
                        "with more."
                    )
    return ""


def _encoded(rows: ShownRows, encoded: list[list[FieldTokens]]) -> Stage:
    kinds = {encoder.spec()["kind"] for encoder in rows.encoders.values()}
    sentences = ["A network computes with numbers, so every token becomes one."]
    if kinds & {"category", "bag"}:
        sentences.append(
            "The vocabulary was learned from the training rows and gives each value an id. A value that was not among "
            "them is unknown, and all unknown values share one id."
        )
    if "number" in kinds:
        sentences.append("Numbers are scaled by the mean and the standard deviation of the training rows.")
    as_given = {name for name in rows.encoders if all(name in cells for cells in rows.raw)}
    return Stage("Encoded tokens", " ".join(sentences), EncodedRows(encoded), note=_partial_note(rows, as_given))


def _field_tokens(rows: ShownRows, row: int, encoder: FieldEncoder) -> FieldTokens:
    name = encoder.field.name
    values = rows.fields_of(row)[name]
    given = rows.elements.get(name)
    tokens = encoder.decode(rows.fields_of(row)) if given is None else given[row]
    spec = encoder.spec()
    if spec["kind"] == "category":
        return FieldTokens(name, tokens, [str(id) for id in values.tolist()], values == UNKNOWN_IDS["category"])
    if spec["kind"] == "bag":
        encoded = [", ".join(str(id) for id in ids if id) or "none" for ids in values.tolist()]
        return FieldTokens(name, tokens, encoded, (values == UNKNOWN_IDS["bag"]).any(axis=1))
    return FieldTokens(name, tokens, [_channels_text(channels) for channels in values], np.zeros(len(values), bool))


def _channels_text(channels: np.ndarray) -> str:
    shown = ", ".join(f"{value:.2f}" for value in channels[:SHOWN_CHANNELS])
    return f"{shown}, …" if len(channels) > SHOWN_CHANNELS else shown


def _padded(
    encoded: list[list[FieldTokens]], fields: Mapping[str, np.ndarray], lengths: np.ndarray, may_pack: bool
) -> Stage:
    longest = int(lengths.max())
    cells = [[*row[0].encoded, *[""] * (longest - len(row[0].encoded))] for row in encoded]
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
    text += "The bars show the active batch size: the rows that still have a token at each position."
    if may_pack:
        text += " A packed sequence computes these rows only."
    inputs = [(name, str(values.dtype), values.shape) for name, values in {**fields, "lengths": lengths}.items()]
    content = PaddedBatch(encoded[0][0].name, cells, lengths, active_rows(lengths), inputs, may_pack)
    return Stage("Padded batch", text, content, (len(lengths), longest), ("rows", "tokens"))
