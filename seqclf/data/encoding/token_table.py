"""One sequence for readers: its original texts, one line of tokens, and a table of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.encoders import decode

MAX_TOKENS = 40  # rows of a table
MIN_TOKENS = 10  # rows of a table with many columns
MAX_CELLS = 600  # which bounds the size of a page


class TokenTable(NamedTuple):
    """Tokens of a sequence. `positions`: of the tokens shown, from 0. `columns`: heading → a text for each of them.

    `length`: tokens of the sequence, those that truncation cut not counted. `empty`: headings of the columns that hold
    no value in these tokens, and are left out. `phrases`: positions of all tokens that a line of tokens omits, as they
    are nodes of a tree whose words have lines of their own.
    """

    positions: list[int]
    columns: dict[str, list[str]]
    length: int
    empty: list[str]
    phrases: frozenset[int] = frozenset()


class DescribedRow(NamedTuple):
    """A sequence for readers. `texts`: field → original text, for fields of texts. `tokens`: what a model reads.

    `contributions`: of the tokens of the table to what a model predicts, None for one that it did not read, and in
    place of all if they are not explained.
    """

    id: str
    tokens: str
    texts: Mapping[str, str]
    table: TokenTable
    contributions: Sequence[float | None] | None = None


def describe_row(
    encoders: Mapping[str, FieldEncoder], id: str, fields: Mapping[str, np.ndarray], texts: Mapping[str, str]
) -> DescribedRow:
    """Describe one encoded sequence. `fields`: name → (T,) or (T, D). `texts`: field → original text, if it is kept."""
    return DescribedRow(id, decode(encoders, fields), texts, token_table(encoders, fields))


def token_table(encoders: Mapping[str, FieldEncoder], fields: Mapping[str, np.ndarray]) -> TokenTable:
    """Return the first and the last tokens of one encoded sequence, fewer of them where there are many columns."""
    length = len(next(iter(fields.values())))
    shown = _ends(length, MAX_TOKENS)
    columns: dict[str, list[str]] = {}
    is_phrase = np.zeros(length, bool)
    for encoder in encoders.values():
        columns |= encoder.token_columns(fields, shown)
        is_phrase |= encoder.repeats_others(fields)
    empty = [heading for heading, texts in columns.items() if not any(texts)]
    kept = {heading: texts for heading, texts in columns.items() if heading not in empty}
    rows = _ends(len(shown), max(MIN_TOKENS, MAX_CELLS // max(1, len(kept))))
    cells = {heading: [texts[row] for row in rows] for heading, texts in kept.items()}
    phrases = frozenset(np.flatnonzero(is_phrase).tolist())
    return TokenTable(shown[rows].tolist(), cells, length, empty, phrases)


def _ends(count: int, most: int) -> np.ndarray:
    """Return the positions of `count` items, or of the first and last `most` of them."""
    return np.arange(count) if count <= most else np.r_[: most // 2, count - (most + 1) // 2 : count]
