"""Sources → Arrow batches of canonical columns, with the row each came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.casts import FILE, canonical, quote_identifier
from seqclf.data.reading.events import read_events
from seqclf.data.reading.formats import NOT_UTF8, REJECT_SCANS, REJECTS, connect_source, describe_columns
from seqclf.data.reading.line_endings import original
from seqclf.data.reading.record_batches import CanonicalBatch, Refusal
from seqclf.data.reading.sources import Source, listing_of, local_files, query_text
from seqclf.data.schema.schema import Schema
from seqclf.errors import InputError

BATCH_ROWS = 8192
MOST_SHOWN = 10_000  # characters that DuckDB keeps of a malformed line


def column_types(source: Source) -> dict[str, str]:
    """Column names and DuckDB types."""
    with connect_source(source) as (connection, relation):
        return describe_columns(connection, relation)


def sample(source: Source, rows: int) -> pa.Table:
    # The malformed lines of text files are skipped here; the read that follows tells of each.
    with connect_source(source, keep_rejects=True) as (connection, relation):
        return connection.sql(f"SELECT * FROM {relation} LIMIT {rows}").to_arrow_table()


def count_rows(source: Source) -> int:
    with connect_source(source) as (connection, relation):
        return connection.execute(f"SELECT count(*) FROM {relation}").fetchone()[0]  # type: ignore[index]


def read(
    source: Source,
    schema: Schema,
    key: str | None = None,
    rows: int = BATCH_ROWS,
    malformed: list[Refusal] | None = None,
) -> Iterator[CanonicalBatch]:
    """Stream the canonical columns of every sequence; in file order, or, of event tables, in the order of the groups.

    Columns: `label` (string) and `id` where the schema has them, one per field (a list of integers, strings, doubles
    or vectors of doubles; a string for text), `raw <field>` (how a text cell begins, for error lines) and, where it is
    given, `split key`: the value of the SQL expression `key`. Files with a row per sequence come `rows` at a time,
    whatever their own blocks. Malformed lines of text files, and files of a class folder that cannot be used, stop the
    read, or are added to `malformed`.
    """
    refused = _refused_files(source)
    if malformed is not None:
        malformed += refused
    elif refused:
        raise InputError(str(refused[0]))
    several = not schema.group_by and query_text(source) is None and len(local_files(source)) > 1
    with connect_source(source, several, malformed is not None) as (connection, relation):
        types = describe_columns(connection, relation)
        if schema.group_by:
            yield from read_events(connection, relation, types, source, schema, key)
        else:
            expressions = canonical(schema, types, str(source), key) + ([quote_identifier(FILE)] if several else [])
            reader = connection.sql(f"SELECT {', '.join(expressions)} FROM {relation}").to_arrow_reader(rows)
            yield from _numbered(_rechunked(reader, rows), str(source), several)
        if malformed is not None:
            malformed += _rejects(connection, source.encoding)


def _refused_files(source: Source) -> list[Refusal]:
    """The files of a class folder that cannot be used, one refusal each."""
    listing = listing_of(source)
    refused = [] if listing is None else listing.refused
    return [Refusal(str(path), None, "the file", reason) for path, reason in refused]


def _numbered(batches: Iterable[pa.RecordBatch], file: str, several: bool) -> Iterator[CanonicalBatch]:
    """Batches with the row of each sequence in its file, from 1; `several`: the column FILE says which that is."""
    position = 1
    for batch in batches:
        if not several:
            yield CanonicalBatch(file, np.arange(position, position + batch.num_rows), batch)
            position += batch.num_rows
            continue
        files = batch.column(FILE)
        runs = pc.run_end_encode(files)
        ends = runs.run_ends.to_numpy()
        firsts = np.ones(len(ends), np.int64)
        if runs.values[0].as_py() == file:  # the last file goes on
            firsts[0] = position
        starts = np.append(0, ends[:-1])
        rows = np.arange(batch.num_rows) + np.repeat(firsts - starts, ends - starts)
        file, position = runs.values[-1].as_py(), int(rows[-1]) + 1
        yield CanonicalBatch(file, rows, batch, files=files)


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


def _rejects(connection: duckdb.DuckDBPyConnection, encoding: str) -> list[Refusal]:
    """The malformed lines that DuckDB kept, one refusal each."""
    made = connection.execute(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{REJECTS}'").fetchone()
    if not made or not made[0]:
        return []
    found = connection.execute(
        f"SELECT DISTINCT ON (file_path, line) file_path, line, column_name, error_message, csv_line FROM {REJECTS} "
        f"JOIN {REJECT_SCANS} USING (scan_id, file_id) "
        "ORDER BY file_path, line, column_idx"
    ).fetchall()
    found = [(original(file), *rest) for file, *rest in found]
    for file, line, _, message, text in found:
        whole = text and len(text) < MOST_SHOWN and "\n" not in text.strip()
        if "unterminated quote" in message and not whole:  # nobody knows how many rows it took
            raise InputError(
                f"{file}: line {line}: a quote is never closed and swallows the lines after it; mend the line, or set "
                "data.quote='' to turn quoting off"
            )
        if "line size" in message.lower():  # in a quote, the lines after it are skipped unseen
            raise InputError(
                f"{file}: line {line} is longer than the 2 MB a line of text can have; take it out, or write such data "
                "as JSON lines, Parquet or Arrow"
            )
    return [
        Refusal(file, None, column or "the line", reason_of(message, encoding), line)
        for file, line, column, message, _ in found
    ]


def reason_of(message: str, encoding: str) -> str:
    """What DuckDB says of a malformed line, in this project's words."""
    first = message.strip().splitlines()[0].rstrip(" .")
    if NOT_UTF8.search(first):
        return f"is not valid {encoding}; set data.encoding=latin-1 (or utf-16)"
    return f"is malformed: {first}; mend the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"
