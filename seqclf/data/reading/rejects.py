"""Malformed lines of text files, which DuckDB leaves out of the rows and keeps in a table of rejects."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from seqclf.data.reading.casts import quote_literal
from seqclf.data.reading.formats.line_endings import original
from seqclf.data.reading.record_batches import Refusal
from seqclf.data.reading.source_errors import LINE_REMEDY, LONG_LINE, LONG_LINE_REMEDY, NOT_UTF8
from seqclf.errors import InputError

LINES_TABLE, SCANS_TABLE = "malformed_lines", "malformed_scans"
SHOWN_CHARACTERS = 10_000  # of a malformed line, DuckDB keeps no more


class _Reject(NamedTuple):
    """The first problem of one line. `line` counts from 1, `text` is how the line begins."""

    file: str
    line: int
    column: str | None
    message: str
    text: str | None


def read_options() -> dict[str, str]:
    """Arguments of `read_csv`, as SQL, that keep malformed lines in the tables of rejects."""
    return {
        "store_rejects": "true",
        "rejects_table": quote_literal(LINES_TABLE),
        "rejects_scan": quote_literal(SCANS_TABLE),
    }


def forget(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop the tables of rejects. The next query makes new ones."""
    connection.execute(f"DROP TABLE IF EXISTS {LINES_TABLE}; DROP TABLE IF EXISTS {SCANS_TABLE}")


def refusals(connection: duckdb.DuckDBPyConnection, encoding: str) -> list[Refusal]:
    """One refusal for each malformed line, sorted by file and line.

    Raises InputError for a line that took rows after it along: an open quote, or a line that is too long.
    """
    tables = connection.execute(f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{LINES_TABLE}'").fetchall()
    if not tables:
        return []
    # A line with several problems is one refusal.
    rows = connection.execute(
        f"SELECT DISTINCT ON (file_path, line) file_path, line, column_name, error_message, csv_line "
        f"FROM {LINES_TABLE} JOIN {SCANS_TABLE} USING (scan_id, file_id) ORDER BY file_path, line, column_idx"
    ).fetchall()
    rejects = [_Reject(original(file), *rest) for file, *rest in rows]
    for reject in rejects:
        _require_one_line(reject)
    return [
        Refusal(reject.file, None, reject.column or "the line", _reason(reject.message, encoding), reject.line)
        for reject in rejects
    ]


def _require_one_line(reject: _Reject) -> None:
    """Raise InputError if the reject may have swallowed the lines after it, which nobody could count."""
    where = f"{reject.file}: line {reject.line}"
    # A text that DuckDB kept in full, and that is one line, took no other line along.
    is_one_line = reject.text and len(reject.text) < SHOWN_CHARACTERS and "\n" not in reject.text.strip()
    if "unterminated quote" in reject.message and not is_one_line:
        raise InputError(
            where,
            "a quote is never closed and swallows the lines after it",
            "fix the line, or set data.quote='' to turn quoting off",
        )
    if "line size" in reject.message.lower():
        raise InputError(where, LONG_LINE, LONG_LINE_REMEDY)


def _reason(message: str, encoding: str) -> str:
    """DuckDB's message about a malformed line as the reason of a refusal."""
    first_line = message.strip().splitlines()[0].rstrip(" .")
    if NOT_UTF8.search(first_line):
        return f"is not valid {encoding}; set data.encoding=latin-1 (or utf-16)"
    return f"is malformed: {first_line}; {LINE_REMEDY}"
