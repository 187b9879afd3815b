"""Files of any kind DuckDB reads → Arrow batches of canonical columns, with the row each came from.

Text formats are read as text and cast here, column by column, so that one bad cell refuses one row and never the file.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as arrow_dataset

from seqclf.data.schema import Field, Schema
from seqclf.errors import InputError

BATCH_ROWS = 8192
COMPRESSED = (".gz", ".zst", ".zstd")
ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8", "utf-16": "utf-16", "utf-8-sig": "utf-8"}
SEPARATED = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": "\t"}
QUERY = re.compile(r"\s*(select|with|from)\s", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """One place to read from: `path` is a path, a glob, a URL, a `.sql` file, a query or `builtin:NAME`.

    `key` is what the user set to name it (`data.train`), for error lines.
    """

    path: str
    key: str
    header: bool = True
    encoding: str = "utf-8"
    quote: str | None = None
    delimiter: str | None = None

    def __str__(self) -> str:
        return self.key if QUERY.match(self.path) else self.path


class Batch(NamedTuple):
    """Canonical columns of consecutive rows; `file` and `first_row` (from 1, the header not counted) say whose."""

    file: str
    first_row: int
    columns: pa.RecordBatch


def local_files(source: Source) -> list[Path]:
    """The files a source reads, as far as they can be known: those a query names in quotes count."""
    if source.path.startswith("builtin:"):
        return [_builtin(source)]
    if is_remote(source):
        return []
    text = _query_text(source)
    if text is None:
        return [Path(path) for path in sorted(glob(source.path, recursive=True))]
    found = [path for quoted in re.findall(r"'((?:[^']|'')+)'", text) for path in sorted(glob(quoted, recursive=True))]
    own = [Path(source.path)] if source.path.endswith(".sql") else []
    return own + [Path(path) for path in found]


def is_remote(source: Source) -> bool:
    return "://" in (_query_text(source) or source.path)


def column_types(source: Source) -> dict[str, str]:
    """Column names and DuckDB types."""
    with _connected(source) as (connection, relation):
        described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in described}


def sample(source: Source, rows: int) -> pa.Table:
    with _connected(source) as (connection, relation):
        return connection.sql(f"SELECT * FROM {relation} LIMIT {rows}").to_arrow_table()


def count_rows(source: Source) -> int:
    with _connected(source) as (connection, relation):
        return connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0]  # type: ignore[index]


def read(source: Source, schema: Schema, key: str | None = None, rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Stream the canonical columns of every row, in file order.

    Columns: `label` (string) and `id` where the schema has them, one per field (a list of integers, strings, doubles
    or vectors of doubles; a string for text), `raw_<field>` (how a text cell begins, for error lines) and `key`, the
    SQL expression given for splitting.
    """
    types = column_types(source)
    expressions = []
    if schema.label is not None:
        expressions.append(f"CAST({_quoted(schema.label)} AS VARCHAR) AS label")
    if schema.id is not None:
        expressions.append(f"{_quoted(schema.id)} AS id")
    for entry in schema.fields:
        expressions += _field_expressions(entry, types[entry.column])
    if key is not None:
        expressions.append(f"{key} AS key")
    several = len(local_files(source)) > 1 and _query_text(source) is None and _suffix(source.path) not in _ARROW
    if several:
        expressions.append("filename AS file")
    with _connected(source) as (connection, relation):
        reader = connection.sql(f"SELECT {', '.join(expressions)} FROM {relation}").to_arrow_reader(rows)
        position, file = 1, str(source)
        while True:
            with _explained(source):
                batch = next(reader, None)
            if batch is None:
                return
            if not several:
                yield Batch(file, position, batch)
                position += batch.num_rows
                continue
            for name, part in _runs(batch):
                position = position if name == file else 1
                file = name
                yield Batch(file, position, part)
                position += part.num_rows


_ARROW = {".arrow", ".feather", ".ipc"}


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where its `file` changes."""
    names = batch.column("file").to_pylist()
    start = 0
    for stop in range(1, len(names) + 1):
        if stop == len(names) or names[stop] != names[start]:
            yield names[start], batch.slice(start, stop - start)
            start = stop


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _field_expressions(entry: Field, kind: str) -> list[str]:
    column, name = _quoted(entry.column), _quoted(entry.name)
    if entry.kind == "text":
        return [f"CAST({column} AS VARCHAR) AS {name}"]
    element = {"category": "BIGINT" if entry.values == "integer" else "VARCHAR", "number": "DOUBLE"}[entry.kind]
    if kind in ("VARCHAR", "JSON"):
        vectors = entry.kind == "number" and (entry.width or 1) > 1
        cell = f"NULLIF(trim(CAST({column} AS VARCHAR)), '')" if kind == "VARCHAR" else column
        if entry.separator is not None:
            space = entry.separator.isspace()
            pattern = r"\s+" if space else r"\s*" + re.escape(entry.separator) + r"\s*"
            cell = f"regexp_split_to_array({cell}, {_literal(pattern)})"
        parsed = f"TRY_CAST({cell} AS {element}{'[][]' if vectors else '[]'})"
        return [f"{parsed} AS {name}", f"left(CAST({column} AS VARCHAR), 40) AS {_quoted('raw_' + entry.name)}"]
    if not kind.endswith("]"):
        raise InputError(
            f"column '{entry.column}' holds {kind}, not lists (data.fields.{entry.name}={entry.kind}); a row must be "
            "one sequence: put each sequence's values into one list, or name another column"
        )
    depth = "[][]" if entry.kind == "number" and kind.count("[") > 1 else "[]"
    return [f"TRY_CAST({column} AS {element}{depth}) AS {name}"]


def _builtin(source: Source) -> Path:
    path = Path(str(files("seqclf.data.builtin").joinpath(source.path.removeprefix("builtin:"))))
    if not path.is_file():
        raise InputError(f"{source.key}={source.path}: no such built-in file")
    return path


def _suffix(path: str) -> str:
    name = Path(path)
    return (Path(name.stem) if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def _query_text(source: Source) -> str | None:
    if QUERY.match(source.path):
        return source.path
    if source.path.endswith(".sql") and Path(source.path).is_file():
        return Path(source.path).read_text(encoding="utf-8")
    return None


def _relation(source: Source, connection: duckdb.DuckDBPyConnection) -> str:
    """The SQL that stands after FROM."""
    query = _query_text(source)
    if query is not None:
        return f"({query.strip().rstrip(';')})"
    path = str(_builtin(source)) if source.path.startswith("builtin:") else source.path
    paths = [] if is_remote(source) else local_files(source)
    if not is_remote(source) and not paths:
        raise InputError(f"{source.key}={source.path}: no such file; check the path (it is read from {Path.cwd()})")
    for found in paths:
        if found.is_dir():
            raise InputError(f"{source.key}={source.path}: is a folder; name its files: {source.path.rstrip('/')}/*")
        if found.stat().st_size == 0:
            raise InputError(f"{found}: the file is empty; give a file with a row per sequence")
    suffix = _suffix(path)
    if suffix in SEPARATED:
        return _separated(source, path, suffix)
    if suffix in (".json", ".jsonl", ".ndjson"):
        return f"read_json({_literal(path)}, sample_size = -1)"
    if suffix in (".parquet", ".pq"):
        return f"read_parquet({_literal(path)})"
    if suffix in _ARROW:
        try:
            connection.register("arrow_files", arrow_dataset.dataset([str(found) for found in paths], format="ipc"))
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: is not a readable Arrow file ({_first_line(error)}); write it again") from None
        return "arrow_files"
    raise InputError(
        f"{source.key}={source.path}: unknown kind of file '{suffix}'; "
        "give .csv, .tsv, .txt, .jsonl, .parquet, .arrow (also .gz), a .sql file or a query"
    )


def _separated(source: Source, path: str, suffix: str) -> str:
    try:
        encoding = ENCODINGS.get(codecs.lookup(source.encoding).name)
    except LookupError:
        encoding = None
    if encoding is None:
        raise InputError(f"data.encoding={source.encoding}: not supported; use utf-8, latin-1 or utf-16")
    options = ["all_varchar = true", f"header = {str(source.header).lower()}", f"encoding = {_literal(encoding)}"]
    delimiter = source.delimiter if source.delimiter is not None else SEPARATED[suffix]
    if delimiter is not None:
        options.append(f"delim = {_literal(delimiter)}")
    if source.quote is not None:
        options.append(f"quote = {_literal(source.quote)}")
        if source.quote == "":
            options.append("escape = ''")
    return f"read_csv({_literal(path)}, {', '.join(options)})"


@contextmanager
def _connected(source: Source) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    connection = duckdb.connect()
    try:
        with _explained(source):
            connection.execute("SET enable_progress_bar = false")
            yield connection, _relation(source, connection)
    finally:
        connection.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


@contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Turn DuckDB's errors into one line that names the file and the remedy."""
    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        line = re.search(r"CSV Error on Line: (\d+)", text)
        where = f"{source}: line {line[1]}" if line else str(source)
        if "nicode" in text or "utf-8" in text.lower():
            raise InputError(f"{where} is not valid {source.encoding}; set data.encoding=latin-1 (or utf-16)") from None
        if line:
            detail = [part for part in text.splitlines()[1:] if part.strip() and not part.startswith("Original Line")]
            remedy = "mend the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"
            raise InputError(f"{where}: {detail[0].strip() if detail else 'malformed'}; {remedy}") from None
        reason = _first_line(error).removeprefix(f"{type(error).__name__}: ")
        raise InputError(f"{where}: cannot be read: {reason}") from None


def source_digest(source: Source) -> str:
    """What tells one state of the files from another, cheaply: path, size and time of change of each."""
    states = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in local_files(source)]
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, _query_text(source)]
    return json.dumps([options, states])
