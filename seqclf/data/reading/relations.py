"""Relations are SQL expressions that return the rows of a source. A relation can follow FROM."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from seqclf.data.reading import line_endings
from seqclf.data.reading.format import Files, Format, TableSql, describe_columns
from seqclf.data.reading.format_lookup import find_format
from seqclf.data.reading.object_store import MIRRORED
from seqclf.data.reading.queries import INPUT, check_query, in_fixed_order
from seqclf.data.reading.sources import COMPRESSED, Source, class_folder, listing_of, suffix_of
from seqclf.data.schema.casts import FILE, SHOWN_CHARACTERS, quote_identifier, quote_literal
from seqclf.errors import InputError

TABLE = "table_in_memory"
NUMBER_COLUMNS = {"file_row_number", "file_index"}  # names of DuckDB's columns, unless a file has them


class Relation(NamedTuple):
    """SQL expressions that return the rows of a source.

    `sql`: returns the rows without a column for the file. `named_sql`: returns the rows with the column FILE, which
    holds the path of each row's file; equal to `sql` for an in-memory table and for the result of a query.
    `numbered_sql`: returns the rows with DuckDB's columns `file_row_number` and `file_index`. `numbered_sql` is None if
    the format has no row numbers, or if the files have columns with these names.
    """

    sql: str
    named_sql: str
    numbered_sql: str | None = None


def build_relation(
    source: Source,
    paths: Sequence[Path],
    connection: duckdb.DuckDBPyConnection,
    temporary: Path,
    keep_malformed: bool,
) -> Relation:
    """Find the format of the files of a source. Build the SQL by which `connection` reads the files.

    `paths`: paths of local files, empty for a URL. `temporary`, `keep_malformed`: see `Files`.
    """
    if source.table is not None:
        connection.register(TABLE, source.table)
        return with_members(Relation(TABLE, TABLE), connection)
    first_path = paths[0] if paths else source.path
    folder, listing = class_folder(source), listing_of(source)
    file_per_sequence = listing is not None and listing.per_class
    file_format = find_format(source, first_path, in_class_folder=folder is not None)
    files = Files(source, paths, suffix_of(first_path), connection, keep_malformed, file_per_sequence, temporary)
    _require_readable(file_format, files)
    if file_format.by_lines and not file_per_sequence and source.encoding != "utf-16":
        files = files._replace(paths=line_endings.uniform(paths, temporary))
    table = file_format.table(files)
    if folder is None:
        numbered_sql = file_format.with_row_numbers(table(False))
    else:
        table, numbered_sql = _with_class(table, file_format, files, folder), None
    plain_names = files.paths == paths and source.mirror is None
    named_sql = table(True) if plain_names else _with_original_names(table(True))
    relation = Relation(table(False), named_sql, numbered_sql)
    # To describe 20,000 text files takes half a second, and their cells are texts.
    return relation if file_format.by_lines else with_members(relation, connection)


def with_members(relation: Relation, connection: duckdb.DuckDBPyConnection) -> Relation:
    """Replace each list of objects by a list for each member, which has the name of the member.

    If a column has the name of one of DuckDB's numbers of rows, the relation loses the numbers.
    """
    rows = connection.sql(f"SELECT * FROM {relation.sql}")
    columns: dict[str, Any] = dict(zip(rows.columns, rows.types, strict=True))
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


def _require_readable(file_format: Format, files: Files) -> None:
    """Raise InputError if the format cannot read a URL, or cannot read a folder with one sub-folder for each label."""
    source = files.source
    if not files.paths and not file_format.remote:
        raise InputError(f"{source.key}={source.path}", f"'{files.ending}' is read from local files", "download it")
    if files.file_per_sequence and not file_format.in_folder_per_class:
        raise InputError(
            f"{source.key}={source.path}",
            f"a folder per class must hold text files, not '{files.ending}'",
            f"give the files themselves: {class_folder(source)}/*/*{files.ending}",
        )


def _with_original_names(relation: str) -> str:
    """In the column FILE, replace the paths of copies by the original paths, and mirror paths by object URLs."""
    name = quote_identifier(FILE)
    original = f"regexp_replace({name}, {quote_literal(line_endings.COPY)}, '')"
    url = rf"regexp_replace({original}, {quote_literal(MIRRORED)}, '\1://')"
    return f"(SELECT * REPLACE ({url} AS {name}) FROM {relation})"


def _with_class(table: TableSql, file_format: Format, files: Files, folder: Path) -> TableSql:
    """Add the column `label`, whose value is the name of a file or of its folder.

    No column is added if the files already have a column `label`.
    """
    file = quote_identifier(FILE)
    # DuckDB needs half a second to describe the columns of 20,000 text files. Columns are therefore not described for a
    # format that never has a column `label`.
    if not file_format.only_in_class_folders:
        columns = describe_columns(files.connection, table(True))
        if "label" in {name.casefold() for name in columns}:
            return table
    if files.file_per_sequence:
        below = f"substr({file}, {len(str(folder / '_'))})"  # path relative to the folder of the source
        label = f"split_part({below}, '/', 1)"
    else:
        label = _stem(file)

    def labelled(named_files: bool) -> str:
        exclude = "" if named_files else f" EXCLUDE ({file})"
        return f"(SELECT *{exclude}, {label} AS label FROM {table(True)})"

    return labelled


def _stem(file: str) -> str:
    """Return SQL for the name of a file without its folder and without its endings.

    `file`: SQL for the path of the file.
    """
    compressions = "|".join(ending.removeprefix(".") for ending in COMPRESSED)
    return rf"regexp_replace(regexp_replace(parse_filename({file}), '[.]({compressions})$', ''), '[.][^.]*$', '')"


# The option `data.query` is one SELECT from the table `input`, which holds the rows of a file. The result of the query
# replaces the rows of the file.
#
# The query is stored in the bundle and runs on each new file at prediction. The result of the query must therefore
# depend only on the table `input`.

SHOWN_COLUMNS = 20  # maximum number of column names that an error message lists


def apply_query(
    relation: Relation, source: Source, connection: duckdb.DuckDBPyConnection, null_columns: Iterable[str]
) -> Relation:
    """Return a relation with the result of `source.query`. The query reads the rows of `relation` as the table `input`.

    `connection`: DuckDB connection, which may read only the files of the source. `null_columns`: columns that new files
    may lack at prediction, such as the label. If the query fails, the missing `null_columns` are added to the table
    `input` with null in every row, and the query is tried again. Raises InputError if the query cannot be run on the
    columns of the files.
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
