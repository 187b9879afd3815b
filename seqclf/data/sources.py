"""Files of any kind DuckDB reads → Arrow batches of canonical columns, with the row each came from.

Text formats are read as text and cast here, column by column, so that one bad cell refuses one row and never the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from glob import escape, glob
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq

from seqclf.data import separated
from seqclf.data.canonical import FILE, canonical, literal, quoted, steps
from seqclf.data.schema import Schema, check_names
from seqclf.errors import InputError

BATCH_ROWS = 8192
COMPRESSED = (".gz", ".zst")
JSON = (".json", ".jsonl", ".ndjson")
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
QUERY = re.compile(r"\s*(select|with|from)\s", re.IGNORECASE)
REGISTERED = "arrow_files"
ARROW_FILE = "__filename"  # as Arrow calls the file of a row


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
        own = Path(source.path).expanduser()
        return [own] if own.exists() else _matches(str(own))
    found = [path for named in re.findall(r"'((?:[^']|'')+)'", text) for path in _matches(named)]
    return ([Path(source.path)] if source.path.endswith(".sql") else []) + found


def _matches(pattern: str) -> list[Path]:
    return [Path(path) for path in sorted(glob(pattern, recursive=True))]  # noqa: PTH207 (it may be absolute)


def is_remote(source: Source) -> bool:
    return "://" in (_query_text(source) or source.path)


def column_types(source: Source) -> dict[str, str]:
    """Column names and DuckDB types."""
    with _connected(source) as (connection, relation):
        return _described(connection, relation)


def sample(source: Source, rows: int) -> pa.Table:
    with _connected(source) as (connection, relation):
        return connection.sql(f"SELECT * FROM {relation} LIMIT {rows}").to_arrow_table()


def count_rows(source: Source) -> int:
    with _connected(source) as (connection, relation):
        return connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0]  # type: ignore[index]


def content_key(source: Source, schema: Schema) -> str:
    """The SQL of a number that rows of equal steps share, however their cells are written."""
    types = column_types(source)
    parts = ", ".join(steps(field, types[field.column], str(source)) for field in schema.fields)
    return f"CAST(hash({parts}) >> 1 AS BIGINT)"


def read(source: Source, schema: Schema, key: str | None = None, rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Stream the canonical columns of every row, in file order, `rows` at a time whatever the file's own blocks.

    Columns: `label` (string) and `id` where the schema has them, one per field (a list of integers, strings, doubles
    or vectors of doubles; a string for text), `raw <field>` (how a text cell begins, for error lines) and, where it is
    given, `split key`: the value of the SQL expression `key`.
    """
    several = _query_text(source) is None and len(local_files(source)) > 1
    with _connected(source, named_files=several) as (connection, relation):
        expressions = canonical(schema, _described(connection, relation), str(source), key)
        if several:
            expressions.append(quoted(FILE))
        reader = connection.sql(f"SELECT {', '.join(expressions)} FROM {relation}").to_arrow_reader(rows)
        position, file = 1, str(source)
        for batch in _rechunked(reader, rows):
            for name, part in _runs(batch) if several else [(file, batch)]:
                position = position if name == file else 1
                file = name
                yield Batch(file, position, part)
                position += part.num_rows


def _rechunked(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of exactly `rows`, the last one apart."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        while count + batch.num_rows >= rows:
            head = batch.slice(0, rows - count)
            yield pa.concat_batches([*held, head]) if held else head
            batch, held, count = batch.slice(rows - count), [], 0
        if batch.num_rows:
            held.append(batch)
            count += batch.num_rows
    if held:
        yield pa.concat_batches(held)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Cut a batch where its file changes."""
    runs = pc.run_end_encode(batch.column(FILE))
    start = 0
    for name, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield name, batch.slice(start, stop - start)
        start = stop


def _described(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def _builtin(source: Source) -> Path:
    path = Path(str(files("seqclf.data.builtin").joinpath(source.path.removeprefix("builtin:"))))
    if not path.is_file():
        raise InputError(f"{source.key}={source.path}: no such built-in file")
    return path


def _suffix(path: str | Path) -> str:
    name = Path(path)
    return (Path(name.stem) if name.suffix.lower() in COMPRESSED else name).suffix.lower()


def _query_text(source: Source) -> str | None:
    if QUERY.match(source.path):
        return source.path
    if source.path.endswith(".sql") and Path(source.path).is_file():
        return Path(source.path).read_text(encoding="utf-8")
    return None


def _readable(source: Source) -> list[Path]:
    """The files of a source that is no query and not remote; raises unless all are there, filled and of one kind."""
    paths = local_files(source)
    if not paths:
        raise InputError(f"{source.key}={source.path}: no such file; check the path (it is read from {Path.cwd()})")
    for path in paths:
        if path.is_dir():
            raise InputError(f"{source.key}={source.path}: {path} is a folder; name its files: {path}/*.parquet")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the file is empty; give a file with a row per sequence")
        if _suffix(path) != _suffix(paths[0]):
            raise InputError(
                f"{source.key}={source.path}: {paths[0]} and {path} are of two kinds; name one kind of file"
            )
    return paths


def _relation(source: Source, connection: duckdb.DuckDBPyConnection, named_files: bool) -> str:
    """The SQL that stands after FROM; with `named_files`, it has the column `in file` too."""
    query = _query_text(source)
    if query is not None:
        return f"({query.strip().rstrip(';')}\n)"
    paths = [] if is_remote(source) else _readable(source)
    suffix = _suffix(paths[0] if paths else source.path)
    named = ", ".join(literal(escape(str(path))) for path in paths) or literal(source.path)
    options = {"filename": literal(FILE)} if named_files else {}
    if suffix in separated.DELIMITERS:
        found = {key: getattr(source, key) for key in ("header", "encoding", "quote", "delimiter")}
        return _function("read_csv", named, {**options, **separated.options(paths, suffix, **found)})
    if suffix in JSON:
        types = _json_types(named, source_digest(source)) if paths else {}
        named_types = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in types.items())
        return _function("read_json", named, {**options, "columns": f"{{{named_types}}}"} if types else options)
    if suffix in PARQUET:
        if paths:
            check_names(pq.read_schema(paths[0]).names, str(paths[0]))
        return _function("read_parquet", named, options)
    if suffix in ARROW and paths:
        connection.register(REGISTERED, _arrow_files(paths, named_files))
        return f"(SELECT * RENAME ({ARROW_FILE} AS {quoted(FILE)}) FROM {REGISTERED})" if named_files else REGISTERED
    raise InputError(
        f"{source.key}={source.path}: unknown kind of file '{suffix}'; "
        "give .csv, .tsv, .txt, .jsonl, .parquet, .arrow (text also as .gz), a .sql file or a query"
    )


def _function(name: str, paths: str, options: dict[str, str]) -> str:
    return f"{name}([{paths}]{''.join(f', {key} = {value}' for key, value in options.items())})"


@lru_cache(maxsize=64)
def _json_types(named: str, state: str) -> dict[str, str]:
    """Column types of JSON files, found once per `state`, as that reads all of them. Dates and such stay text."""
    with duckdb.connect() as connection:
        found = _described(connection, f"read_json([{named}], sample_size = -1)")
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    return {name: re.sub(dates, "VARCHAR", kind) for name, kind in found.items()}


def _arrow_files(paths: list[Path], named_files: bool) -> arrow_dataset.Dataset | arrow_dataset.Scanner:
    try:
        with pa.memory_map(str(paths[0])) as file:
            check_names(pa.ipc.open_file(file).schema.names, str(paths[0]))
        found = arrow_dataset.dataset([str(path) for path in paths], format="ipc")
    except (OSError, pa.ArrowInvalid):
        raise InputError(f"{paths[0]}: is not a readable Arrow file; write it again, in the IPC file format") from None
    if not named_files:
        return found
    return found.scanner(columns=[*found.schema.names, ARROW_FILE])


@contextmanager
def _connected(source: Source, named_files: bool = False) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    with _explained(source), duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        yield connection, _relation(source, connection, named_files)


@contextmanager
def _explained(source: Source) -> Iterator[None]:
    """Turn what DuckDB and Arrow say into one line that names the file and the remedy."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        # Past the first batch DuckDB's errors come as Arrow's, an OSError or an ArrowInvalid of the same text.
        raise InputError(_explanation(source, str(error))) from None


def _explanation(source: Source, text: str) -> str:
    file = re.search(r"^\s*file ?= ?(.+)$", text, re.MULTILINE)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = f"{file[1].strip() if file else source}{f': line {line[1]}' if line else ''}"
    if "nicode" in text or "utf-8" in text.lower():
        return f"{where} is not valid {source.encoding}; set data.encoding=latin-1 (or utf-16)"
    if "Maximum line size" in text:
        return (
            f"{where} is longer than the 2 MB a line of text can have; write such data as JSON lines, Parquet or Arrow"
        )
    if line:
        known = ("Expected Number", "Value with unterminated")
        detail = [part.strip(" .") for part in text.splitlines() if part.strip().startswith(known)] or ["is malformed"]
        return (
            f"{where}: {detail[0]}; mend the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"
        )
    reason = re.sub(r"^([A-Z]\w* )+Error: | in file \"[^\"]*\",?", "", text.strip().splitlines()[0]).rstrip(" .")
    return f"{where}: cannot be read: {reason}; mend {'the query' if _query_text(source) else 'or replace the file'}"


def source_digest(source: Source) -> str:
    """What tells one state of the files from another, cheaply: path, size and time of change of each."""
    states = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in local_files(source)]
    options = [source.path, source.header, source.encoding, source.quote, source.delimiter, _query_text(source)]
    return json.dumps([options, states])
