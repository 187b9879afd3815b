"""Readable description of one sequence: its original texts, and a table of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from seqclf.data.encoding.encoders import static_of, tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder

MAX_TOKENS = 40  # maximum number of rows of a table
MIN_TOKENS = 10  # a table with many columns is not cut below this number of rows
MAX_DRAWN = 400  # maximum number of tokens of a sequence that is drawn
MAX_CELLS = 600  # maximum number of cells of a table, so that the page stays small


class TokenTable(NamedTuple):
    """A table of some tokens of a sequence.

    `positions`: position of each token in the sequence, from 0. `columns`: dict heading → texts, without columns that
    are all empty. `length`: number of tokens of the sequence after truncation.
    """

    positions: list[int]
    columns: dict[str, list[str]]
    length: int


class DescribedRow(NamedTuple):
    """Readable description of a sequence.

    `texts`: dict text field → original text. `table`: the first and the last tokens, as the model gets them.
    `contributions`: contribution of each of them in log-odds, None if the
    prediction is not explained. `form`: "table" if the tokens have several fields, otherwise the form of the field.
    `tokens`: (T,) ids of a strip, or (T, D) encoded channels of a chart. `values`: (T, W) numbers of a chart in the
    units of the data, NaN where missing. `static`: dict static field → text. `of_static`: dict static field →
    contribution.
    """

    id: str
    texts: Mapping[str, str]
    table: TokenTable
    contributions: Sequence[float] | None = None
    form: Literal["table", "strip", "chart", "text"] = "text"
    tokens: np.ndarray | None = None
    values: np.ndarray | None = None
    static: Mapping[str, str] = MappingProxyType({})
    of_static: Mapping[str, float] = MappingProxyType({})


def describe_row(
    encoders: Mapping[str, FieldEncoder], id: str, fields: Mapping[str, np.ndarray], texts: Mapping[str, str]
) -> DescribedRow:
    """Return the readable description of a row. `fields`: see `row_inputs`. `texts`: dict field → original text."""
    static = {name: encoder.decode({name: fields[name]})[0] for name, encoder in static_of(encoders).items()}
    fields = {name: values for name, values in fields.items() if name not in static}
    first, *others = tokens_of(encoders).values()
    if others or first.form == "text":
        table = token_table(encoders, fields)
        return DescribedRow(id, texts, table, form="table" if others else "text", static=static)
    tokens = fields[first.field.name]
    shown = _ends(len(tokens), MAX_DRAWN)
    table = TokenTable(shown.tolist(), first.token_columns(fields, shown), len(tokens))
    values = first.original_values(fields) if first.form == "chart" else None
    return DescribedRow(id, texts, table, None, first.form, tokens, values, static)


def token_table(encoders: Mapping[str, FieldEncoder], fields: Mapping[str, np.ndarray]) -> TokenTable:
    """Return a table of the first and the last tokens of a sequence, with fewer than `MAX_TOKENS` rows if it is wide.

    `fields`: dict array name → (T,) or (T, D) encoded tokens.
    """
    length = len(next(iter(fields.values())))
    shown = _ends(length, MAX_TOKENS)
    columns: dict[str, list[str]] = {}
    for encoder in tokens_of(encoders).values():
        columns |= encoder.token_columns(fields, shown)
    kept = {heading: texts for heading, texts in columns.items() if any(texts)}
    rows = _ends(len(shown), max(MIN_TOKENS, MAX_CELLS // max(1, len(kept))))
    cells = {heading: [texts[row] for row in rows] for heading, texts in kept.items()}
    return TokenTable(shown[rows].tolist(), cells, length)


def _ends(count: int, most: int) -> np.ndarray:
    """Return the first and the last positions of `count` items, at most `most` in total."""
    return np.arange(count) if count <= most else np.r_[: most // 2, count - (most + 1) // 2 : count]
