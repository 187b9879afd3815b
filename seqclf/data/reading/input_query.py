"""Query of `data.query`: one SELECT over the table `input`, which turns the rows of a file into those that are read.

It is stored in the bundle and runs on every file that is predicted, so it must not depend on anything but its input.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import duckdb

from seqclf.data.reading.casts import SHOWN_CHARACTERS, quote_identifier
from seqclf.data.reading.formats.format import describe_columns
from seqclf.data.reading.formats.relations import Relation
from seqclf.data.reading.queries import (
    can_be_parsed,
    cte_names,
    named_files,
    subquery,
    unknown_table_functions,
)
from seqclf.data.reading.sources import Source, is_sql_file, query_text, read_sql_file
from seqclf.errors import InputError

INPUT = "input"
LIKE_A_FILE = re.compile(r"[./:\\*?\[\]]")
SHOWN_COLUMNS = 20  # of a file, in an error message


def load_query(value: str, key: str = "data.query") -> str:
    """Return the SQL of a query, which is given as text or as a `.sql` file, without comments at its end.

    `key`: the option, for error messages. Raises InputError unless it is one SELECT that reads `input` alone.

    >>> load_query("SELECT items, label FROM input;")
    'SELECT items, label FROM input'
    >>> load_query("SELECT * FROM input JOIN 'rates.csv' USING (day)")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: data.query: reads 'rates.csv'; it can read the table input only
    """
    text = read_sql_file(Path(value).expanduser(), f"{key}={value}") if is_sql_file(value) else value
    return check_query(text, key)


def check_query(text: str, key: str = "data.query") -> str:
    """Return a query without comments at its end. Raises InputError unless it is one SELECT that reads `input` alone.

    Whatever cannot be understood is refused: the query of a bundle runs on the machine of whoever predicts with it.
    """
    query = subquery(text, key)
    if not can_be_parsed(query):
        raise InputError(key, "is nested too deeply to be checked", "write a shorter query")
    known = cte_names(query) | {INPUT}
    for entry in named_files(query):
        # WITH may name a file in one part of the query that another part reads, so names of files are refused anyway.
        if entry.function or entry.path.casefold() not in known or LIKE_A_FILE.search(entry.path):
            raise InputError(key, f"reads '{entry.path}'", f"it can read the table {INPUT} only")
    for function in unknown_table_functions(query):
        raise InputError(key, f"calls {function}()", f"it can read the table {INPUT} only")
    return query


def apply_query(
    relation: Relation, source: Source, connection: duckdb.DuckDBPyConnection, null_columns: Iterable[str]
) -> Relation:
    """Return the rows of a source's query, which reads `relation` as `input`. `connection`: restricted already.

    `null_columns`: columns that files to be predicted may lack, such as the label. Where the query cannot do without
    them, they are null in every row. Raises InputError if the query does not fit the file.
    """
    if query_text(source) is not None:
        raise InputError(source.key, "is SQL already", "give a file, and one query over input: data.query")
    query = check_query(str(source.query))  # that of a bundle has not been through the config
    columns = describe_columns(connection, relation.sql)
    names = {name.casefold() for name in columns}
    nulls = [f", NULL AS {quote_identifier(name)}" for name in null_columns if name.casefold() not in names]
    reason = ""
    for added in dict.fromkeys(["", "".join(nulls)]):
        sql = f"(WITH {INPUT} AS (SELECT *{added} FROM {relation.sql}) SELECT * FROM ({query}\n))"
        try:
            describe_columns(connection, sql)
            return Relation(sql, sql)
        except duckdb.PermissionException:
            raise
        except duckdb.Error as error:
            reason = reason or str(error).splitlines()[0].rstrip(" .")
    shown = [name[:SHOWN_CHARACTERS] for name in list(columns)[:SHOWN_COLUMNS]]
    more = ", …" if len(columns) > SHOWN_COLUMNS else ""
    raise InputError(source, f"data.query cannot be run on it: {reason}", f"its columns are {', '.join(shown)}{more}")
