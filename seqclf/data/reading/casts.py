"""DuckDB expressions that turn columns of any type into the canonical columns that checks and encoders read.

The names of canonical columns contain spaces, and names of fields never do, so that no field can have such a name.
`label` and `id` are reserved instead.
"""

from __future__ import annotations

import re

from seqclf.data.reading.times import time_in_seconds
from seqclf.data.schema.cell_types import MISSING_WORDS
from seqclf.data.schema.fields import Field
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

LABEL, ID = "label", "id"
KEY, FILE, ROW = "split key", "in file", "row number"
SHOWN_CHARACTERS = 40  # of a cell, in an error message
WHOLE = r"regexp_full_match(trim({entry}), '[+-]?[0-9]+([.]0*)?')"
WHOLE_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?\b")


def raw_column(field: str) -> str:
    """Name of the column that holds the beginning of each text cell of `field`, for error messages."""
    return f"raw {field}"


def quote_identifier(name: str) -> str:
    """Quote the name of a column for SQL.

    >>> print(quote_identifier('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a text value for SQL."""
    return "'" + text.replace("'", "''") + "'"


def canonical(schema: Schema, types: dict[str, str], where: str, key: str | None) -> list[str]:
    """SELECT list of a table with a row per sequence (see `SourceReader.read`).

    `types`: DuckDB type by column. `key`: SQL of the split key. `where`: the source, for error messages.
    """
    expressions = label_id_and_key(schema, types, key)
    for field in schema.fields:
        expressions.append(f"{tokens_sql(field, types, where)} AS {quote_identifier(field.name)}")
        column = field.columns[0]
        if not field.running_text and types[column] in ("VARCHAR", "JSON"):
            text = f"CAST({plain(column, types)} AS VARCHAR)"
            expressions.append(f"left({text}, {SHOWN_CHARACTERS}) AS {quote_identifier(raw_column(field.name))}")
    return expressions


def label_id_and_key(schema: Schema, types: dict[str, str], key: str | None) -> list[str]:
    """SELECT list of what a row has next to its fields."""
    expressions = []
    if schema.label is not None:
        expressions.append(f"CAST({plain(schema.label, types)} AS VARCHAR) AS {LABEL}")
    if schema.id is not None:
        expressions.append(f"{plain(schema.id, types)} AS {ID}")
    if key is not None:
        expressions.append(f"{key} AS {quote_identifier(KEY)}")
    return expressions


def number(text: str) -> str:
    """Text as a number: null for words that mean a missing value, infinite (and so refused) for all other words."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return (
        f"COALESCE(TRY_CAST({text} AS DOUBLE), "
        f"CASE WHEN COALESCE(lower(trim({text})), '') NOT IN ({missing}) THEN 'inf'::DOUBLE END)"
    )


def is_missing_sql(text: str) -> str:
    """True for text that says nothing: null, blank, or a word such as NA. The rule of `record_batches.ids_or_null`."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return f"COALESCE(lower(regexp_replace({text}, '^[\\s\\pZ]+|[\\s\\pZ]+$', '', 'g')), '') IN ({missing})"


def plain(column: str, types: dict[str, str], table: str = "") -> str:
    """A column as it is, or for JSON values their text without quotes. `table`: its alias, if the name needs one."""
    name = f"{table}.{quote_identifier(column)}" if table else quote_identifier(column)
    return f"({name} ->> '$')" if types[column] == "JSON" else name


def tokens_sql(field: Field, types: dict[str, str], where: str) -> str:
    """The list of tokens of one field (or its running text), null where a cell holds none of that kind.

    Several columns become one list of vectors, null unless their lists have the same length.
    """
    lists = [_column_tokens(field, column, types[column], where) for column in field.columns]
    if len(lists) == 1:
        return lists[0]
    same_length = " AND ".join(f"len({other}) = len({lists[0]})" for other in lists[1:])
    vector = ", ".join(f"token[{position}]" for position in range(1, len(lists) + 1))
    return f"CASE WHEN {same_length} THEN list_transform(list_zip({', '.join(lists)}), lambda token: [{vector}]) END"


def _column_tokens(field: Field, name: str, kind: str, where: str) -> str:
    """The tokens of one column of DuckDB type `kind`. Raises InputError for a type that cannot hold them."""
    column, is_list = quote_identifier(name), kind.endswith("]")
    if field.running_text:
        if is_list:
            raise InputError(
                f"{where}: column '{name}' holds lists ({kind}), not text; "
                f"set data.fields.{field.name}=category or number"
            )
        return f"CAST({plain(name, {name: kind})} AS VARCHAR)"
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
            f"{where}: column '{name}' holds {kind}, not lists (data.fields.{field.name}={field.kind}); a row "
            "must be one sequence: put each sequence's values into one list, name another column, or, if a row is one "
            "event, set data.group_by"
        )
    deep = field.kind == "number" and kind.count("[") > 1
    return _from_list(field, column, kind[: kind.rindex("[")], "[][]" if deep else "[]")


def _from_text(field: Field, cell: str) -> str:
    """A list written inside a text cell: split by the separator, or in brackets as JSON and DuckDB write it."""
    if field.kind == "time":
        return _from_list(field, _split(field, cell), "VARCHAR", "[]")
    if field.separator is not None:
        parts = _split(field, cell)
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
    # Both casts read the same lists; the one through JSON is three times as fast.
    parsed = f"COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS {element}), TRY_CAST({cell} AS {element}))"
    if field.kind == "number":
        single = (
            f"list_transform(TRY_CAST({cell} AS DOUBLE[][]), lambda token: CASE WHEN len(token) = 1 THEN token[1] END)"
        )
        return parsed if field.depth > 1 else f"CASE WHEN starts_with({cell}, '[[') THEN {single} ELSE {parsed} END"
    return f"CASE WHEN {_fractions(cell)} THEN {_whole(cell)} ELSE {parsed} END"


def _split(field: Field, cell: str) -> str:
    """A text cell as a list of texts."""
    if field.separator is None:
        return f"TRY_CAST({cell} AS VARCHAR[])"
    pattern = r"\s+" if field.separator.isspace() else r"\s*" + re.escape(field.separator) + r"\s*"
    return f"regexp_split_to_array({cell}, {quote_literal(pattern)})"


def _from_list(field: Field, column: str, element: str, depth: str) -> str:
    """A list as a list of the field's values. `element`: DuckDB type of its elements. `depth`: [] or [][]."""
    if field.kind == "time":
        if element == "JSON":
            column, element = f"TRY_CAST({column} AS VARCHAR[])", "VARCHAR"
        return f"list_transform({column}, lambda entry: {time_in_seconds('entry', element, field.option('unit'))})"
    if field.kind == "number":
        if element == "VARCHAR" and field.separator is not None and field.option("missing") != "refuse":
            return f"list_transform({column}, lambda entry: {number('entry')})"
        return f"TRY_CAST({column} AS DOUBLE{depth})"
    if field.values == "integer":
        return f"TRY_CAST({column} AS BIGINT[])" if WHOLE_NUMBERS.fullmatch(element) else _whole(column)
    return f"TRY_CAST({column} AS VARCHAR[])"


def _fractions(cell: str) -> str:
    """True for a cell that may hold numbers which a cast to integers would round."""
    return f"regexp_matches({cell}, '[.eE]')"


def _whole(column: str) -> str:
    """A list of integers, null where a cast would round: of ['2', '2.0', '2.5'] only the last."""
    is_whole = WHOLE.format(entry="entry")
    return (
        f"list_transform(TRY_CAST({column} AS VARCHAR[]), "
        f"lambda entry: CASE WHEN {is_whole} THEN TRY_CAST(entry AS BIGINT) END)"
    )
