"""Relations: the rows of a source in SQL, as they can stand after FROM.

Cells of text formats are read as text and cast later, column by column, so that a bad cell costs one row and never the
file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from glob import escape
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq

from seqclf.data.reading import rejects, sandbox
from seqclf.data.reading.casts import FILE, quote_identifier, quote_literal
from seqclf.data.reading.formats import csv_dialect, line_endings
from seqclf.data.reading.formats.ts_format import select_series
from seqclf.data.reading.queries import subquery
from seqclf.data.reading.source_errors import NOT_UTF8
from seqclf.data.reading.sources import Source, class_folder, listing_of, query_text, source_digest, suffix_of
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

JSON = (".json", ".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
TIME_SERIES = (".ts",)
PLAIN_TEXT = (".txt", "")  # in a folder with a file, or a folder of files, per class
BY_LINES = {*csv_dialect.DELIMITERS, *PLAIN_TEXT, *TIME_SERIES}
ARROW_TABLE, NAMED_ARROW_TABLE = "arrow_files", "named_arrow_files"
ARROW_FILE = "__filename"  # Arrow's name for the column with the file of each row

TableSql = Callable[[bool], str]  # SQL of a table, with the column FILE if the argument is true


class Relation(NamedTuple):
    """SQL of the rows of a source. `named_sql` has the column FILE too, the path of each row's file, unless the source
    is a query."""

    sql: str
    named_sql: str


def build_relation(
    source: Source,
    paths: Sequence[Path],
    connection: duckdb.DuckDBPyConnection,
    copies: Path,
    keep_malformed: bool,
) -> Relation:
    """Detect how the files are written, and build the SQL that reads them in `connection`.

    `paths`: the local files, empty for a query or a URL. `copies`: folder for copies with uniform line endings. With
    `keep_malformed`, malformed lines of text files go to the tables of rejects instead of stopping the query.
    """
    query = query_text(source)
    if query is not None:
        sql = f"({subquery(query, str(source))}\n)"
        return Relation(sql, sql)
    kind = suffix_of(paths[0] if paths else source.path)
    folder, listing = class_folder(source), listing_of(source)
    file_per_sequence = listing is not None and listing.per_class
    table: TableSql
    if kind in BY_LINES and not file_per_sequence and source.encoding != "utf-16":
        paths = line_endings.uniform(paths, copies)
    if folder is not None and file_per_sequence:
        table = partial(_texts, source, folder, paths, kind)
    elif folder is not None and kind in PLAIN_TEXT:
        table = partial(_text_lines, source, paths, keep_malformed)
    else:
        table = _table(source, paths, kind, connection, keep_malformed)
        if folder is not None:
            table = _with_class(table, connection)
    return Relation(table(False), _with_original_names(table(True), copies))


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Column names and DuckDB types of a relation, without FILE."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def with_row_numbers(relation: str) -> str | None:
    """The relation with DuckDB's columns `file_row_number` and `file_index`. None unless it reads Parquet directly."""
    return f"{relation[:-1]}, file_row_number = true)" if relation.startswith("read_parquet(") else None


def _with_original_names(relation: str, copies: Path) -> str:
    """The relation with the names of files in FILE, where `copies` of them are read."""
    if not copies.exists():
        return relation
    name = quote_identifier(FILE)
    original = f"regexp_replace({name}, {quote_literal(line_endings.COPY)}, '') AS {name}"
    return f"(SELECT * REPLACE ({original}) FROM {relation})"


def _with_class(table: TableSql, connection: duckdb.DuckDBPyConnection) -> TableSql:
    """Add the column `label`, the name of each file without its endings, unless the files have such a column."""
    file = quote_identifier(FILE)
    columns = {name.casefold() for name in describe_columns(connection, table(True))}
    label = "" if "label" in columns else f", {_stem(file)} AS label"

    def labelled(named_files: bool) -> str:
        exclude = "" if named_files else f" EXCLUDE ({file})"
        return f"(SELECT *{exclude}{label} FROM {table(True)})"

    return labelled


def _table(
    source: Source, paths: Sequence[Path], kind: str, connection: duckdb.DuckDBPyConnection, keep_malformed: bool
) -> TableSql:
    files = _sql_list(paths) if paths else f"[{quote_literal(source.path)}]"
    if kind in csv_dialect.DELIMITERS:
        dialect = csv_dialect.detect_dialect(
            paths,
            kind,
            header=source.header,
            encoding=source.encoding,
            quote=source.quote,
            delimiter=source.delimiter,
        )
        options = dialect.options()
        # Lines of too many surplus cells stop the query instead: DuckDB would run out of memory keeping them.
        if keep_malformed and paths and csv_dialect.can_keep_malformed(paths, dialect):
            options |= rejects.read_options()
        return partial(_scan, "read_csv", files, options)
    if kind in JSON:
        return partial(_scan, "read_json", files, _json_options(files, source) if paths else {})
    if kind in PARQUET:
        if paths:
            check_names(_parquet_names(paths[0]), str(paths[0]))
        return partial(_scan, "read_parquet", files, {})
    if kind in ARROW and paths:
        return _arrow_table(paths, connection)
    if kind in TIME_SERIES and paths:
        return lambda named_files: select_series(paths, FILE if named_files else None)
    raise InputError(
        f"{source.key}={source.path}: unknown kind of file '{kind}'; "
        "give .csv, .tsv, .txt, .jsonl, .parquet, .arrow, .ts (text also as .gz), a folder with a file per class, a "
        ".sql file or a query"
    )


def _scan(function: str, files: str, options: dict[str, str], named_files: bool) -> str:
    """A call of one of DuckDB's table functions. `options`: its arguments as SQL."""
    if named_files:
        options = {"filename": quote_literal(FILE), **options}
    return f"{function}({files}{''.join(f', {key} = {value}' for key, value in options.items())})"


def _sql_list(paths: Sequence[Path]) -> str:
    return f"[{', '.join(quote_literal(escape(str(path))) for path in paths)}]"


def _texts(source: Source, folder: Path, paths: Sequence[Path], kind: str, named_files: bool) -> str:
    """Columns `text` and `label`: a sequence per file, in the folder of its class."""
    if kind not in PLAIN_TEXT:
        raise InputError(
            f"{source.key}={source.path}: a folder per class must hold text files, not '{kind}'; give the files "
            f"themselves: {folder}/*/*{kind}"
        )
    file = f", filename AS {quote_identifier(FILE)}" if named_files else ""
    below = f"substr(filename, {len(str(folder / '_'))})"  # all of `paths` begin with the folder
    text = f"SELECT content AS text, split_part({below}, '/', 1) AS label{file} FROM read_text({_sql_list(paths)})"
    return f"({text} ORDER BY filename)"


def _text_lines(source: Source, paths: Sequence[Path], keep_malformed: bool, named_files: bool) -> str:
    """Columns `text` and `label`: a sequence per line, in the file of its class."""
    options = {**csv_dialect.lines(source.encoding, header=False), "filename": "true"}
    if keep_malformed:
        options |= rejects.read_options()
    file = f", filename AS {quote_identifier(FILE)}" if named_files else ""
    lines = _scan("read_csv", _sql_list(paths), options, named_files=False)
    return f"(SELECT line AS text, {_stem('filename')} AS label{file} FROM {lines})"


def _stem(file: str) -> str:
    """SQL of a file's name without its folder and endings."""
    return rf"regexp_replace(regexp_replace(parse_filename({file}), '[.](gz|zst)$', ''), '[.][^.]*$', '')"


def _json_options(files: str, source: Source) -> dict[str, str]:
    types = _json_types(files, source_digest(source))
    columns = ", ".join(f"{quote_literal(name)}: {quote_literal(kind)}" for name, kind in types.items())
    return {"columns": f"{{{columns}}}"} if types else {}


@lru_cache(maxsize=64)
def _json_types(files: str, state: str) -> dict[str, str]:
    """Column types of JSON files. Dates and such stay text.

    `state`: of the files, so that the types are looked up again only when one has changed.
    """
    # All rows are read for this, once in preparing the data and not again in the survey of the same file.
    with sandbox.connect() as connection:
        types = describe_columns(connection, f"read_json({files}, sample_size = -1)")
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    return {name: re.sub(dates, "VARCHAR", kind) for name, kind in types.items()}


def _parquet_names(path: Path) -> list[str]:
    try:
        return pq.read_schema(path).names
    except pa.ArrowException as error:  # DuckDB's message would not name the file
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}; replace the file") from None


def _arrow_table(paths: Sequence[Path], connection: duckdb.DuckDBPyConnection) -> TableSql:
    for path in paths:
        _check_arrow(path, path.stat().st_mtime)
    dataset = arrow_dataset.dataset([str(path) for path in paths], format="ipc")
    connection.register(ARROW_TABLE, dataset)
    # A second table, as only a scanner knows the file of a row, and only a dataset reads no more columns than needed.
    connection.register(NAMED_ARROW_TABLE, dataset.scanner(columns=[*dataset.schema.names, ARROW_FILE]))
    named_sql = f"(SELECT * RENAME ({ARROW_FILE} AS {quote_identifier(FILE)}) FROM {NAMED_ARROW_TABLE})"
    return lambda named_files: named_sql if named_files else ARROW_TABLE


@lru_cache(maxsize=64)
def _check_arrow(path: Path, state: float) -> None:
    """Raise InputError if an Arrow file is damaged. DuckDB trusts its buffers, and would crash.

    `state`: time of change, so that a file is checked again only when it has changed.
    """
    try:
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
            check_names(file.schema.names, str(path))
            for index in range(file.num_record_batches):
                file.get_batch(index).validate(full=True)
    except (OSError, pa.ArrowException) as error:
        if NOT_UTF8.search(str(error)):
            raise InputError(f"{path}: holds text that is not valid utf-8; write it as utf-8") from None
        raise InputError(f"{path}: is not a readable Arrow file; write it again, in the IPC file format") from None
