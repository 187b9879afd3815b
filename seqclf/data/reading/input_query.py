"""Query of `data.query`: one SELECT over the table `input`, which turns the rows of a file into those that are read.

It is stored in the bundle and runs on every file that is predicted, so it must not depend on anything but its input.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb

from seqclf.data.reading.casts import SHOWN_CHARACTERS, quote_identifier
from seqclf.data.reading.formats.relations import Relation, describe_columns
from seqclf.data.reading.queries import QUERY, cte_names, named_files, subquery
from seqclf.data.reading.sources import Source, query_text
from seqclf.errors import InputError

INPUT = "input"
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
    text = value if QUERY.match(value) else _file_text(value, key)
    query = subquery(text, key)
    known = cte_names(query) | {INPUT}
    for entry in named_files(query):
        if entry.function or entry.path.casefold() not in known:
            raise InputError(f"{key}: reads '{entry.path}'; it can read the table {INPUT} only")
    return query


def _file_text(value: str, key: str) -> str:
    path = Path(value).expanduser()
    if path.suffix != ".sql":
        raise InputError(f"{key}={value}: is neither a query nor a .sql file; write SELECT … FROM {INPUT}")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{key}={value}: no such file; check the path (it is read from {Path.cwd()})") from None
    except (OSError, UnicodeError) as error:
        raise InputError(f"{key}={value}: is not utf-8 text ({error}); save the query as utf-8") from None


def apply_query(
    relation: Relation, source: Source, connection: duckdb.DuckDBPyConnection, null_columns: Iterable[str]
) -> Relation:
    """Return the rows of a source's query, which reads `relation` as `input`.

    `null_columns`: columns that files to be predicted may lack, such as the label. A file without them gets them with
    null in every row, so that the query of training runs on it. Raises InputError if the query does not fit the file.
    """
    if query_text(source) is not None:
        raise InputError(f"{source.key}: is SQL already; give a file, and one query over input: data.query")
    # Checked again, because the query of a bundle has not been through the config.
    query = load_query(str(source.query))
    columns = describe_columns(connection, relation.sql)
    names = {name.casefold() for name in columns}
    nulls = "".join(
        f", CAST(NULL AS VARCHAR) AS {quote_identifier(name)}" for name in null_columns if name.casefold() not in names
    )
    sql = f"(WITH {INPUT} AS (SELECT *{nulls} FROM {relation.sql}) SELECT * FROM ({query}\n))"
    try:
        describe_columns(connection, sql)
    except duckdb.Error as error:
        reason = str(error).splitlines()[0].rstrip(" .")
        shown = [name[:SHOWN_CHARACTERS] for name in list(columns)[:SHOWN_COLUMNS]]
        more = ", …" if len(columns) > SHOWN_COLUMNS else ""
        raise InputError(
            f"{source}: data.query cannot be run on it: {reason}; its columns are {', '.join(shown)}{more}"
        ) from None
    return Relation(sql, sql)
