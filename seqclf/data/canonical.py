"""Columns of any type → the canonical columns that checks and encoders read, as DuckDB expressions.

Their names are no identifiers, except `label` and `id`, which are reserved: so no field can be called the same.
"""

from __future__ import annotations

import re

from seqclf.data.schema import Field, Schema
from seqclf.errors import InputError

LABEL, ID = "label", "id"
KEY, FILE, ROW = "split key", "in file", "row number"
SHOWN_CHARACTERS = 40
WHOLE_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?\b")


def raw(field: str) -> str:
    """The column that holds how a text cell of `field` begins, for error lines."""
    return f"raw {field}"


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def canonical(schema: Schema, types: dict[str, str], where: str, key: str | None) -> list[str]:
    """The SELECT list; `types`: column → DuckDB type. See `sources.read`."""
    expressions = []
    if schema.label is not None:
        expressions.append(f"CAST({_plain(schema.label, types)} AS VARCHAR) AS {LABEL}")
    if schema.id is not None:
        expressions.append(f"{_plain(schema.id, types)} AS {ID}")
    for field in schema.fields:
        expressions.append(f"{steps(field, types[field.column], where)} AS {quoted(field.name)}")
        if field.kind != "text" and types[field.column] in ("VARCHAR", "JSON"):
            text = f"CAST({_plain(field.column, types)} AS VARCHAR)"
            expressions.append(f"left({text}, {SHOWN_CHARACTERS}) AS {quoted(raw(field.name))}")
    if key is not None:
        expressions.append(f"{key} AS {quoted(KEY)}")
    return expressions


def _plain(column: str, types: dict[str, str]) -> str:
    """A column as it is; of JSON values, their text without the quotes."""
    return f"({quoted(column)} ->> '$')" if types[column] == "JSON" else quoted(column)


def steps(field: Field, kind: str, where: str) -> str:
    """The steps of one field, null where a cell of DuckDB type `kind` holds none of the kind."""
    column, is_list = quoted(field.column), kind.endswith("]")
    if field.kind == "text":
        if is_list:
            raise InputError(
                f"{where}: column '{field.column}' holds lists ({kind}), not text; "
                f"set data.fields.{field.name}=category or number"
            )
        return f"CAST({_plain(field.column, {field.column: kind})} AS VARCHAR)"
    if kind == "VARCHAR":
        return _from_text(field, f"NULLIF(trim({column}), '')")
    if kind == "JSON" and field.separator is not None:
        return _from_text(field, f"({column} ->> '$')")
    if kind == "JSON" or kind.startswith("JSON["):
        return _from_list(field, f"to_json({column})", "JSON", "[]" * field.depth)
    if kind == '"NULL"':  # a column without a single value
        return _from_list(field, "NULL", kind, "[]")
    if not is_list:
        raise InputError(
            f"{where}: column '{field.column}' holds {kind}, not lists (data.fields.{field.name}={field.kind}); a row "
            "must be one sequence: put each sequence's values into one list, or name another column"
        )
    deep = field.kind == "number" and kind.count("[") > 1
    return _from_list(field, column, kind[: kind.rindex("[")], "[][]" if deep else "[]")


def _from_text(field: Field, cell: str) -> str:
    """Lists written inside a cell: split by the separator, or in brackets as JSON and DuckDB write them."""
    if field.separator is not None:
        space = field.separator.isspace()
        pattern = r"\s+" if space else r"\s*" + re.escape(field.separator) + r"\s*"
        parts = f"regexp_split_to_array({cell}, {literal(pattern)})"
        if field.kind == "category" and field.values == "integer":
            return f"CASE WHEN {_fractions(cell)} THEN {_whole(parts)} ELSE TRY_CAST({parts} AS BIGINT[]) END"
        return _from_list(field, parts, "VARCHAR", "[]")
    if field.kind == "category" and field.values == "string":
        # Only JSON reads escapes such as \n and \u00e9; for the rest it would rewrite numbers (1.50 as 1.5).
        return (
            f"CASE WHEN contains({cell}, '\\') THEN COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS VARCHAR[]), "
            f"TRY_CAST({cell} AS VARCHAR[])) ELSE TRY_CAST({cell} AS VARCHAR[]) END"
        )
    element = ("BIGINT" if field.kind == "category" else "DOUBLE") + "[]" * field.depth
    # Both read the same; through JSON three times as fast.
    parsed = f"COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS {element}), TRY_CAST({cell} AS {element}))"
    if field.kind == "number":
        single = (
            f"list_transform(TRY_CAST({cell} AS DOUBLE[][]), lambda step: CASE WHEN len(step) = 1 THEN step[1] END)"
        )
        return parsed if field.depth > 1 else f"CASE WHEN starts_with({cell}, '[[') THEN {single} ELSE {parsed} END"
    return f"CASE WHEN {_fractions(cell)} THEN {_whole(cell)} ELSE {parsed} END"


def _from_list(field: Field, column: str, element: str, depth: str) -> str:
    if field.kind == "number":
        return f"TRY_CAST({column} AS DOUBLE{depth})"
    if field.values == "integer":
        return f"TRY_CAST({column} AS BIGINT[])" if WHOLE_NUMBERS.fullmatch(element) else _whole(column)
    return f"TRY_CAST({column} AS VARCHAR[])"


def _fractions(cell: str) -> str:
    """Whether a cell may hold numbers that a cast to integers would round."""
    return f"regexp_matches({cell}, '[.eE]')"


def _whole(column: str) -> str:
    """Integers, null where a cast would round: of ['2', '2.0', '2.5'] only the last is null."""
    whole = r"regexp_full_match(trim(entry), '[+-]?[0-9]+([.]0*)?')"
    return (
        f"list_transform(TRY_CAST({column} AS VARCHAR[]), "
        f"lambda entry: CASE WHEN {whole} THEN TRY_CAST(entry AS BIGINT) END)"
    )
