"""A source → what stands after FROM, by the kind of its files, in a connection that explains its errors.

Text formats are read as text and cast later, column by column, so that one bad cell refuses one row and never the file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from glob import escape
from pathlib import Path
from shutil import rmtree

import duckdb
import pyarrow as pa
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq

from seqclf.data.reading import csv_dialect, line_endings, sandbox
from seqclf.data.reading.casts import FILE, quote_identifier, quote_literal
from seqclf.data.reading.queries import named_paths, subquery
from seqclf.data.reading.sources import (
    Source,
    class_folder,
    is_remote,
    listing_of,
    local_files,
    query_text,
    resolved,
    source_digest,
)
from seqclf.data.reading.sources import suffix_of as suffix
from seqclf.data.reading.ts_format import select_series
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

JSON = (".json", ".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
TIME_SERIES = (".ts",)
NOT_UTF8 = re.compile(r"invalid (unicode|utf-?8)|not utf-8|byte sequence", re.IGNORECASE)
LINES = (".txt", "")  # in a folder with a file per class
REGISTERED = "arrow_files"
ARROW_FILE = "__filename"  # as Arrow calls the file of a row
BY_LINES = {*csv_dialect.DELIMITERS, *LINES, *TIME_SERIES}
REJECTS, REJECT_SCANS = "malformed_lines", "malformed_scans"
KEPT = {"store_rejects": "true", "rejects_table": quote_literal(REJECTS), "rejects_scan": quote_literal(REJECT_SCANS)}


@contextmanager
def connect_source(
    source: Source, named_files: bool = False, keep_rejects: bool = False
) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """A connection and the source in SQL; what goes wrong inside is told in one line that names file and remedy.

    With `named_files` the relation has the column `in file`; with `keep_rejects`, malformed lines of text files go to
    the table `REJECTS` instead of stopping the read.
    """
    copies = line_endings.new_folder(Path(source.spill).parent if source.spill else Path(tempfile.gettempdir()))
    # DuckDB may read all that is in its spill folder, so it must not be one with files of others.
    spill = Path(source.spill or f"{copies}-spill")
    removed = (copies, spill) if source.spill is None else (copies,)
    with _explained(source), _removed(*removed), sandbox.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"SET temp_directory = {quote_literal(str(spill))}")
        if source.memory_limit is not None:
            connection.execute(f"SET memory_limit = {quote_literal(source.memory_limit)}")
        relation = _relation(source, connection, copies, named_files, keep_rejects)
        if named_files and copies.exists():
            name = quote_identifier(FILE)
            original = f"regexp_replace({name}, {quote_literal(line_endings.COPY)}, '') AS {name}"
            relation = f"(SELECT * REPLACE ({original}) FROM {relation})"
        _restrict(source, connection, copies)
        yield connection, relation


def _restrict(source: Source, connection: duckdb.DuckDBPyConnection, copies: Path) -> None:
    """Only what the source names can be read, and no setting changed, by whatever the source or a name in it says."""
    text = query_text(source)
    if text is not None:
        sandbox.restrict(connection, paths=named_paths(text))
    elif is_remote(source):
        sandbox.restrict(connection, paths=[source.path])
    else:  # by folder: DuckDB takes seconds for the names of 50,000 texts
        folders = {str(path.parent) for path in resolved(local_files(source))}
        patterns = {escape(folder) for folder in folders}  # DuckDB checks the escaped name of a file, then the file
        sandbox.restrict(connection, folders=[*sorted(folders | patterns), str(copies)])


@contextmanager
def _removed(*folders: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for folder in folders:
            rmtree(folder, ignore_errors=True)


def _relation(
    source: Source, connection: duckdb.DuckDBPyConnection, copies: Path, named_files: bool, keep_rejects: bool
) -> str:
    query = query_text(source)
    if query is not None:
        return f"({subquery(query, str(source))}\n)"
    paths = [] if is_remote(source) else _readable(source)
    kind = suffix(paths[0] if paths else source.path)
    folder = class_folder(source)
    listing = listing_of(source)
    whole = listing is not None and listing.per_class  # each file is a sequence
    if kind in BY_LINES and not whole and source.encoding != "utf-16":
        paths = line_endings.uniform(paths, copies)
    if folder is not None and (kind in LINES or whole):
        return _class_texts(source, folder, paths, kind, whole, named_files, keep_rejects)
    relation = _table(source, connection, paths, kind, named_files or folder is not None, keep_rejects)
    if folder is None:
        return relation
    names = {name.casefold() for name in describe_columns(connection, relation)}
    label = "" if "label" in names else f", {_stem(quote_identifier(FILE))} AS label"
    return f"(SELECT *{label} FROM {relation})"


def _table(
    source: Source,
    connection: duckdb.DuckDBPyConnection,
    paths: list[Path],
    kind: str,
    named_files: bool,
    keep_rejects: bool,
) -> str:
    named = _named(paths) or quote_literal(source.path)
    options = {"filename": quote_literal(FILE)} if named_files else {}
    if kind in csv_dialect.DELIMITERS:
        found = {key: getattr(source, key) for key in ("header", "encoding", "quote", "delimiter")}
        layout = csv_dialect.layout(paths, kind, **found)
        if keep_rejects and paths and sum(map(partial(_surplus, layout), paths)) <= csv_dialect.MOST_KEPT:
            options |= KEPT
        return _function("read_csv", named, {**options, **layout.options()})
    if kind in JSON:
        types = _json_types(named, source_digest(source)) if paths else {}
        named_types = ", ".join(f"{quote_literal(name)}: {quote_literal(kind)}" for name, kind in types.items())
        return _function("read_json", named, {**options, "columns": f"{{{named_types}}}"} if types else options)
    if kind in PARQUET:
        if paths:
            check_names(_parquet_names(paths[0]), str(paths[0]))
        return _function("read_parquet", named, options)
    if kind in ARROW and paths:
        for path in paths:
            _check_arrow(path, path.stat().st_mtime)
        connection.register(REGISTERED, _arrow_files(paths, named_files))
        return (
            f"(SELECT * RENAME ({ARROW_FILE} AS {quote_identifier(FILE)}) FROM {REGISTERED})"
            if named_files
            else REGISTERED
        )
    if kind in TIME_SERIES and paths:
        return select_series(paths, FILE if named_files else None)
    raise InputError(
        f"{source.key}={source.path}: unknown kind of file '{kind}'; "
        "give .csv, .tsv, .txt, .jsonl, .parquet, .arrow, .ts (text also as .gz), a folder with a file per class, a "
        ".sql file or a query"
    )


def _surplus(layout: csv_dialect.Layout, path: Path) -> int:
    return csv_dialect.surplus(path, path.stat().st_mtime, layout)


def _class_texts(
    source: Source, folder: Path, paths: list[Path], kind: str, whole: bool, named_files: bool, keep_rejects: bool
) -> str:
    """Columns `text` and `label`: a line per sequence in its class's file, or a file in its class's folder."""
    file = f", filename AS {quote_identifier(FILE)}" if named_files else ""
    if whole:
        if kind not in LINES:
            raise InputError(
                f"{source.key}={source.path}: a folder per class must hold text files, not '{kind}'; give the files "
                f"themselves: {folder}/*/*{kind}"
            )
        below = f"substr(filename, {len(str(folder / '_'))})"  # as `paths` begin with the folder
        text = f"SELECT content AS text, split_part({below}, '/', 1) AS label{file} FROM read_text([{_named(paths)}])"
        return f"({text} ORDER BY filename)"
    lines = csv_dialect.lines(source.encoding, header=False)
    kept = KEPT if keep_rejects else {}
    files = _function("read_csv", _named(paths), {**lines, "filename": "true", **kept})
    return f"(SELECT line AS text, {_stem('filename')} AS label{file} FROM {files})"


def _stem(file: str) -> str:
    """The SQL of a file's name without folder and endings."""
    return rf"regexp_replace(regexp_replace(parse_filename({file}), '[.](gz|zst)$', ''), '[.][^.]*$', '')"


def _readable(source: Source) -> list[Path]:
    """The files of a source that is no query and not remote; raises unless all are there, filled and of one kind."""
    paths = local_files(source)
    if not paths:
        what = "an empty folder" if class_folder(source) else "no such file"
        raise InputError(f"{source.key}={source.path}: {what}; check the path (it is read from {Path.cwd()})")
    for path in paths:
        if path.is_dir():
            raise InputError(f"{source.key}={source.path}: {path} is a folder; name its files: {path}/*.parquet")
        if path.stat().st_size == 0 and class_folder(source) is None:
            raise InputError(f"{path}: the file is empty; give a file with a row per sequence")
        if suffix(path) != suffix(paths[0]):
            raise InputError(
                f"{source.key}={source.path}: {paths[0]} and {path} are of two kinds; name one kind of file"
            )
    return paths


def _named(paths: list[Path]) -> str:
    return ", ".join(quote_literal(escape(str(path))) for path in paths)


def _function(name: str, paths: str, options: dict[str, str]) -> str:
    return f"{name}([{paths}]{''.join(f', {key} = {value}' for key, value in options.items())})"


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Column names and DuckDB types of a relation."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def _parquet_names(path: Path) -> list[str]:
    try:
        return pq.read_schema(path).names
    except pa.ArrowException as error:  # DuckDB says the same of the same file, but not which
        raise InputError(f"{path}: cannot be read: {str(error).splitlines()[0]}; replace the file") from None


@lru_cache(maxsize=64)
def _json_types(named: str, state: str) -> dict[str, str]:
    """Column types of JSON files, found once per `state`, as that reads all of them. Dates and such stay text."""
    with sandbox.connect() as connection:
        found = describe_columns(connection, f"read_json([{named}], sample_size = -1)")
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    return {name: re.sub(dates, "VARCHAR", kind) for name, kind in found.items()}


@lru_cache(maxsize=64)
def _check_arrow(path: Path, state: float) -> None:
    """DuckDB trusts Arrow's buffers and falls over damaged ones. `state`: of the file, which is looked at once."""
    try:
        with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
            check_names(file.schema.names, str(path))
            for batch in range(file.num_record_batches):
                file.get_batch(batch).validate(full=True)
    except (OSError, pa.ArrowException) as error:
        if NOT_UTF8.search(str(error)):
            raise InputError(f"{path}: holds text that is not valid utf-8; write it as utf-8") from None
        raise InputError(f"{path}: is not a readable Arrow file; write it again, in the IPC file format") from None


def _arrow_files(paths: list[Path], named_files: bool) -> arrow_dataset.Dataset | arrow_dataset.Scanner:
    found = arrow_dataset.dataset([str(path) for path in paths], format="ipc")
    return found.scanner(columns=[*found.schema.names, ARROW_FILE]) if named_files else found


@contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Turn what DuckDB and Arrow say into one line that names the file and the remedy."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        # Past the first batch DuckDB's errors come as Arrow's, an OSError or an ArrowInvalid of the same text.
        raise InputError(_explanation(source, line_endings.original(str(error)))) from None


def _explanation(source: Source, text: str) -> str:
    file = re.search(r"^\s*file ?= ?(.+)$", text, re.MULTILINE)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = f"{file[1].strip() if file else source}{f': line {line[1]}' if line else ''}"
    if refused := re.search(r'Cannot access (?:file|directory) "(.*?)" - file system operations are disabled', text):
        path = refused[1].partition("/**/")[0]  # a name that is no file is tried as a folder
        if path in named_paths(query_text(source) or ""):
            return f"{where}: no file matches '{path}'; mend the query"
        return f"{where}: reads '{path}', which it does not name; write the path of each file as one text in quotes"
    if extension := re.search(r'extension "?\'?(\w+)', text):
        return (
            f"{source.key}={source.path}: needs DuckDB's extension '{extension[1]}', which is not installed and cannot "
            f"be fetched; run INSTALL {extension[1]} in DuckDB once with a network, or copy the files here"
        )
    if NOT_UTF8.search(text):
        return f"{where} is not valid {source.encoding}; set data.encoding=latin-1 (or utf-16)"
    if "Maximum line size" in text:
        return (
            f"{where} is longer than the 2 MB a line of text can have; take it out, or write such data as JSON lines, "
            "Parquet or Arrow"
        )
    if "Out of Memory" in text or "failed to allocate" in text.lower():
        return f"{where}: data.memory_limit={source.memory_limit} is too little to read it; raise data.memory_limit"
    if "memory limit" in text or "Memory must have" in text or "unit for memory" in text.lower():
        return f"data.memory_limit={source.memory_limit}: must be a size such as 2GB"
    if line:
        known = ("Expected Number", "Value with unterminated")
        detail = [part.strip(" .") for part in text.splitlines() if part.strip().startswith(known)] or ["is malformed"]
        return (
            f"{where}: {detail[0]}; mend the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"
        )
    lines = [part.strip() for part in text.splitlines() if part.strip()] or ["unknown error"]
    reason = re.sub(r"^([A-Z]\w* )+Error: | in file \"[^\"]*\",?", "", lines[0]).rstrip(" .")
    return f"{where}: cannot be read: {reason}; mend {'the query' if query_text(source) else 'or replace the file'}"
