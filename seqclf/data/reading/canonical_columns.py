"""SELECT lists of the canonical columns that checks and encoders read."""

from __future__ import annotations

from collections.abc import Mapping

from seqclf.data.encoding.registry import make_encoder
from seqclf.data.reading.casts import (
    ID,
    KEY,
    LABEL,
    SHOWN_CHARACTERS,
    TEXT_TYPES,
    plain,
    quote_identifier,
    raw_column,
)
from seqclf.data.schema.cell_types import is_list
from seqclf.data.schema.schema import Schema


def canonical_columns(schema: Schema, types: Mapping[str, str], where: str, key: str | None) -> list[str]:
    """SELECT list of a table with a row per sequence (see `SourceReader.read`).

    `types`: DuckDB type by column. `key`: SQL of the split key. `where`: the source, for error messages.
    """
    expressions = label_id_and_key(schema, types, key)
    for field in schema.fields:
        encoder = make_encoder(field)
        expressions.append(f"{encoder.list_sql(types, where)} AS {quote_identifier(field.name)}")
        column = field.columns[0]
        if types[column] in TEXT_TYPES and is_list(encoder.canonical_type):
            text = f"CAST({plain(column, types[column])} AS VARCHAR)"
            expressions.append(f"left({text}, {SHOWN_CHARACTERS}) AS {quote_identifier(raw_column(field.name))}")
    return expressions


def label_id_and_key(schema: Schema, types: Mapping[str, str], key: str | None) -> list[str]:
    """SELECT list of what a row has next to its fields."""
    expressions = []
    if schema.label is not None:
        expressions.append(f"CAST({plain(schema.label, types[schema.label])} AS VARCHAR) AS {LABEL}")
    if schema.id is not None:
        expressions.append(f"{plain(schema.id, types[schema.id])} AS {ID}")
    if key is not None:
        expressions.append(f"{key} AS {quote_identifier(KEY)}")
    return expressions
