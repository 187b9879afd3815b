"""Conversion of DuckDB errors and Arrow errors to errors with one line: the file, the problem and a remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from seqclf.data.reading.csv_dialect import DELIMITERS, LONG_LINE, LONG_LINE_REMEDY, original
from seqclf.data.reading.object_store import url_of
from seqclf.data.reading.sources import Source, suffix_of
from seqclf.data.schema.casts import quote_literal
from seqclf.data.schema.rows import Refusal
from seqclf.errors import InputError
from seqclf.system.resources import MEMORY_REMEDY

NOT_UTF8 = re.compile(r"invalid (unicode|utf-?8)|not utf-8|byte sequence", re.IGNORECASE)
LINE_REMEDY = "fix the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"


@contextmanager
def explain_errors(source: Source) -> Iterator[None]:
    """Convert an error of DuckDB, Arrow or the file system to an InputError about `source`."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        # After the first record batch, Arrow raises the errors of DuckDB as OSError or ArrowInvalid.
        raise _explanation(source, url_of(original(str(error)))) from None


def _explanation(source: Source, text: str) -> InputError:
    file = re.search(r"^\s*file ?= ?(.+)$", text, re.MULTILINE)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = f"{file[1].strip() if file else source}{f': line {line[1]}' if line else ''}"
    if NOT_UTF8.search(text):
        return InputError(where, f"not valid {source.encoding}", "set data.encoding=latin-1 (or utf-16)")
    if "Maximum line size" in text:
        return InputError(where, LONG_LINE, LONG_LINE_REMEDY)
    if "Out of Memory" in text or "failed to allocate" in text.lower():
        if source.memory_limit is None:
            return InputError(where, "the memory is too small to read it", MEMORY_REMEDY)
        problem = f"data.memory_limit={source.memory_limit} is too little to read it"
        return InputError(where, problem, "raise data.memory_limit")
    if "memory limit" in text or "Memory must have" in text or "unit for memory" in text.lower():
        return InputError(f"data.memory_limit={source.memory_limit}", "must be a size such as 2GB")
    lines = [part.strip() for part in text.splitlines() if part.strip()] or ["unknown error"]
    if line:
        details = [part for part in lines if part.startswith(("Expected Number", "Value with unterminated"))]
        return InputError(where, details[0].strip(" .") if details else "is malformed", LINE_REMEDY)
    reason = re.sub(r"^([A-Z]\w* )+Error: | in file \"[^\"]*\",?", "", lines[0]).rstrip(" .")
    return InputError(where, f"cannot be read: {reason}", "fix or replace the file")


def no_rows(source: Source, hint: str = "") -> InputError:
    """Return the error for a source that has no rows. `hint`: text that is appended to the problem.

    >>> print(no_rows(Source("t.csv", "data.train")))
    t.csv: has no rows; write rows below the names of its columns, or, if line 1 is a row, set data.header=false
    """
    remedy = "give a file with rows"
    if not hint and source.header and suffix_of(source.path) in DELIMITERS:
        header = f"{'data.' if source.key.startswith('data.') else ''}header=false"
        remedy = f"write rows below the names of its columns, or, if line 1 is a row, set {header}"
    return InputError(source, f"has no rows{hint}", remedy)


# Malformed lines in text files. DuckDB skips malformed lines and stores them in a table of rejected lines.

LINES_TABLE, SCANS_TABLE = "malformed_lines", "malformed_scans"
# DuckDB stores up to 10,000 characters of a malformed line. The text is the whole line alone unless it has a line break
# or ends before the value with the problem. Then it may be the line before, which DuckDB also stores if a line has
# several such values. DuckDB has found the end of the line if it stored an error behind the value.
SINGLE_LINE = (
    r"(length(csv_line) < 10_000 AND NOT regexp_matches(trim(csv_line, chr(10) || chr(13)), '[\r\n]') "
    "AND byte_position - line_byte_position < strlen(csv_line) OR EXISTS (SELECT 1 FROM malformed_lines AS other "
    "WHERE (other.scan_id, other.file_id, other.line) = (bad.scan_id, bad.file_id, bad.line) "
    "AND other.line_byte_position > bad.byte_position))"
)
OPEN_QUOTE = (
    "a quote is never closed and swallows the lines after it",
    "fix the line, or set data.quote='' to turn quoting off",
)


def read_options() -> dict[str, str]:
    """Return the `read_csv` arguments with which DuckDB stores malformed lines in tables of rejected lines."""
    return {
        "store_rejects": "true",
        "rejects_table": quote_literal(LINES_TABLE),
        "rejects_scan": quote_literal(SCANS_TABLE),
    }


def forget(connection: duckdb.DuckDBPyConnection) -> None:
    """Delete the tables of rejected lines, which the next query creates again."""
    connection.execute(f"DROP TABLE IF EXISTS {LINES_TABLE}; DROP TABLE IF EXISTS {SCANS_TABLE}")


def refusals(connection: duckdb.DuckDBPyConnection, encoding: str) -> list[Refusal]:
    """Return a refusal for each malformed line, by file and line.

    Raises InputError for an open quote and for a line that is too long, because rows after it may be lost.
    """
    tables = connection.execute(f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{LINES_TABLE}'").fetchall()
    if not tables:
        return []
    # DISTINCT ON selects one problem per line, so a line with several problems gives only one refusal.
    rejected = f"FROM {LINES_TABLE} AS bad JOIN {SCANS_TABLE} USING (scan_id, file_id)"
    swallowing = connection.execute(
        f"SELECT file_path, line, error_type {rejected} WHERE error_type = 'LINE SIZE OVER MAXIMUM' "
        f"OR error_type = 'UNQUOTED VALUE' AND NOT coalesce({SINGLE_LINE}, false) "
        "ORDER BY file_path, line, error_type DESC LIMIT 1"
    ).fetchone()
    if swallowing is not None:
        path, line, kind = swallowing
        where = f"{url_of(original(path))}: line {line}"
        raise InputError(where, *((LONG_LINE, LONG_LINE_REMEDY) if kind.startswith("LINE") else OPEN_QUOTE))
    rows = connection.execute(
        f"SELECT DISTINCT ON (file_path, line) file_path, line, column_name, error_message {rejected} "
        "ORDER BY file_path, line, column_idx"
    ).fetchall()
    result = []
    for path, line, column, message in rows:
        problem = message.strip().splitlines()[0].rstrip(" .")
        reason = f"is malformed: {problem}; {LINE_REMEDY}"
        if NOT_UTF8.search(problem):
            reason = f"is not valid {encoding}; set data.encoding=latin-1 (or utf-16)"
        result.append(Refusal(url_of(original(path)), None, column or "the line", reason, line))
    return result
