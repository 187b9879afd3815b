"""Relations: the rows of a source in SQL, as they can stand after FROM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from seqclf.data.reading.casts import FILE, quote_identifier, quote_literal
from seqclf.data.reading.formats import line_endings
from seqclf.data.reading.formats.format import Files, Format, TableSql, describe_columns
from seqclf.data.reading.formats.lookup import find_format
from seqclf.data.reading.queries import subquery
from seqclf.data.reading.sources import COMPRESSED, Source, class_folder, listing_of, query_text, suffix_of
from seqclf.errors import InputError

TABLE = "table_in_memory"


class Relation(NamedTuple):
    """SQL of the rows of a source.

    `named_sql` has the column FILE too, the path of each row's file, unless the source is a query. `numbered_sql` has
    DuckDB's columns `file_row_number` and `file_index`, where the format has them.
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
    """Find the format of the files, and build the SQL that reads them in `connection`.

    `paths`: the local files, empty for a query or a URL. `temporary`, `keep_malformed`: see `Files`.
    """
    if source.table is not None:
        connection.register(TABLE, source.table)
        return Relation(TABLE, TABLE)
    query = query_text(source)
    if query is not None:
        sql = f"({subquery(query, str(source))}\n)"
        return Relation(sql, sql)
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
    named_sql = table(True) if files.paths == paths else _with_original_names(table(True))
    return Relation(table(False), named_sql, numbered_sql)


def _require_readable(file_format: Format, files: Files) -> None:
    """Raise InputError for a URL, or for a folder per class, that the format does not read."""
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
    """The relation with the original names of files in FILE, where copies of them are read."""
    name = quote_identifier(FILE)
    original = f"regexp_replace({name}, {quote_literal(line_endings.COPY)}, '') AS {name}"
    return f"(SELECT * REPLACE ({original}) FROM {relation})"


def _with_class(table: TableSql, file_format: Format, files: Files, folder: Path) -> TableSql:
    """Add the column `label`, the class of each file, unless the files have such a column."""
    file = quote_identifier(FILE)
    # DuckDB takes half a second to describe 20,000 texts, so formats that cannot have such a column are not asked.
    if not file_format.only_in_class_folders:
        columns = describe_columns(files.connection, table(True))
        if "label" in {name.casefold() for name in columns}:
            return table
    if files.file_per_sequence:
        below = f"substr({file}, {len(str(folder / '_'))})"  # all of the paths begin with the folder
        label = f"split_part({below}, '/', 1)"
    else:
        label = _stem(file)

    def labelled(named_files: bool) -> str:
        exclude = "" if named_files else f" EXCLUDE ({file})"
        return f"(SELECT *{exclude}, {label} AS label FROM {table(True)})"

    return labelled


def _stem(file: str) -> str:
    """SQL of a file's name without its folder and endings."""
    compressions = "|".join(ending.removeprefix(".") for ending in COMPRESSED)
    return rf"regexp_replace(regexp_replace(parse_filename({file}), '[.]({compressions})$', ''), '[.][^.]*$', '')"
