"""Relations are SQL expressions that return the rows of a source, by the format of its files. One can follow FROM."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from seqclf.data.reading.columnar_formats import Arrow, Parquet
from seqclf.data.reading.csv_dialect import COPY
from seqclf.data.reading.format import Files, Format, TextFormat, describe_columns
from seqclf.data.reading.object_store import MIRRORED
from seqclf.data.reading.queries import INPUT, check_query, in_fixed_order
from seqclf.data.reading.sources import Source, suffix_of
from seqclf.data.reading.text_formats import Delimited, JsonLines, PlainText, TimeSeries
from seqclf.data.schema.casts import FILE, SHOWN_CHARACTERS, quote_identifier, quote_literal
from seqclf.data.schema.schema import refuse_nul
from seqclf.errors import InputError

TABLE = "table_in_memory"
NUMBER_COLUMNS = {"file_row_number", "file_index"}  # names of DuckDB's columns, unless a file has them


class Relation(NamedTuple):
    """SQL expressions that return the rows of a source.

    `sql`: rows without a column for the file. `named_sql`: rows with the path of their file in the column FILE, except
    in memory and after a query. `numbered_sql`: rows with DuckDB's `file_row_number` and `file_index`, or None.
    """

    sql: str
    named_sql: str
    numbered_sql: str | None = None


def build_relation(
    source: Source, paths: list[Path], connection: duckdb.DuckDBPyConnection, temporary: Path, keep_malformed: bool
) -> Relation:
    """Build the SQL by which `connection` reads the files of a source, whose folder is listed.

    `paths`: its files, empty for rows in memory. `temporary`, `keep_malformed`: see `Files`.
    """
    if source.table is not None:
        connection.register(TABLE, source.table)
        return with_members(Relation(TABLE, TABLE), connection, str(source))
    file_format = find_format(source, paths[0])
    files = Files(source, paths, connection, keep_malformed, temporary)
    files = files._replace(paths=file_format.readable(files))
    table = file_format.table(files)
    are_originals = files.paths == paths and source.mirror is None
    named_sql = table(True) if are_originals else _with_original_names(table(True))
    relation = Relation(table(False), named_sql, file_format.with_row_numbers(table(False)))
    # To describe 20,000 text files takes half a second, and their cells are texts.
    return relation if isinstance(file_format, TextFormat) else with_members(relation, connection, str(source))


def with_members(relation: Relation, connection: duckdb.DuckDBPyConnection, where: str) -> Relation:
    """Replace each list of objects by a list for each member, which has the name of the member.

    A column that is called like a row number of DuckDB costs the relation its numbers. `where`: name in errors.
    """
    rows = connection.sql(f"SELECT * FROM {relation.sql}")
    columns: dict[str, Any] = dict(zip(rows.columns, rows.types, strict=True))
    refuse_nul((*columns, *map(str, rows.types)), where)  # a type holds the names of the members
    tokens = {name: kind.children[0][1] for name, kind in columns.items() if kind.id == "list"}
    structs = {name: kind for name, kind in tokens.items() if kind.id == "struct"}
    if not structs:
        is_numbered = not {name.casefold() for name in columns} & NUMBER_COLUMNS
        return relation if is_numbered else relation._replace(numbered_sql=None)
    taken, lists = {name.casefold() for name in columns if name not in structs}, []
    for name, struct in structs.items():
        for member, _ in struct.children:
            if member.casefold() in taken:
                raise InputError(f"{name}.{member}", "has the name of another column", "rename it")
            taken.add(member.casefold())
            value = f"struct_extract(token, {quote_literal(member)})"
            values = f"list_transform({quote_identifier(name)}, lambda token: {value})"
            lists.append(f"{values} AS {quote_identifier(member)}")
    excluded = ", ".join(map(quote_identifier, structs))
    plain, named = (
        f"(SELECT * EXCLUDE ({excluded}), {', '.join(lists)} FROM {sql})" for sql in (relation.sql, relation.named_sql)
    )
    return Relation(plain, named)


def _with_original_names(relation: str) -> str:
    """In the column FILE, replace the paths of copies by the original paths, and mirror paths by object URLs."""
    name = quote_identifier(FILE)
    original = f"regexp_replace({name}, {quote_literal(COPY)}, '')"
    url = rf"regexp_replace({original}, {quote_literal(MIRRORED)}, '\1://')"
    return f"(SELECT * REPLACE ({url} AS {name}) FROM {relation})"


# The option `data.query`: a SELECT from the table `input`, on which alone its result may depend, as a bundle runs it
# on new files.

SHOWN_COLUMNS = 20  # maximum number of column names that an error message lists


def apply_query(
    relation: Relation, source: Source, connection: duckdb.DuckDBPyConnection, null_columns: Iterable[str]
) -> Relation:
    """Return a relation with the result of `source.query`, which reads the rows of `relation` as the table `input`.

    `null_columns`: columns that new files may lack, such as the label. If the query fails, it is tried again with null
    for those. Raises InputError if the query cannot be run on the columns.
    """
    query = check_query(str(source.query))  # checked again, because a bundle's query has not passed the config checks
    columns = describe_columns(connection, relation.sql)
    names = {name.casefold() for name in columns}
    nulls = [f", NULL AS {quote_identifier(name)}" for name in null_columns if name.casefold() not in names]
    reason = ""
    for added in dict.fromkeys(["", "".join(nulls)]):
        sql = f"(WITH {INPUT} AS (SELECT *{added} FROM {relation.sql}) SELECT * FROM ({in_fixed_order(query)}\n))"
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


FORMATS: tuple[Format, ...] = (Arrow(), Delimited(), JsonLines(), Parquet(), TimeSeries())
FOLDER_FORMAT = PlainText()


def find_format(source: Source, path: Path) -> Format:
    """Return the format of a file of a source. Raises InputError if no format has the ending of the file.

    >>> type(find_format(Source("new.tsv", "input"), Path("new.tsv"))).__name__
    'Delimited'
    """
    ending, where = suffix_of(path), f"{source.key}={source.path}"
    if source.listing is not None:
        if ending in FOLDER_FORMAT.endings:
            return FOLDER_FORMAT
        problem = f"a folder with a file or a folder per class must hold text files, not '{ending}'"
        raise InputError(where, problem, f"give the files themselves: {source.path}/**/*{ending}")
    for known in FORMATS:
        if ending in known.endings:
            return known
    endings = sorted(ending for known in FORMATS for ending in known.endings)
    remedy = f"give {', '.join(endings)} (text also as .gz), or a folder with a text file per class"
    raise InputError(where, f"unknown kind of file '{ending}'", remedy)
