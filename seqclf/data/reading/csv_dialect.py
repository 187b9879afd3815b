"""Dialect of delimited text files. The dialect is detected from the first lines of a file. Every cell is read as text.

DuckDB's own detection is turned off. If a line is malformed, DuckDB would guess other columns without reporting the
line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.data.reading.sources import Source, suffix_of
from seqclf.data.schema.casts import quote_literal
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

DELIMITERS = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": None}
CANDIDATES = "\t;|,"
ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8", "utf-16": "utf-16", "utf-8-sig": "utf-8"}
SNIFFED_LINES = 20
MAX_LINE_CHARACTERS = 2_000_000  # the longest line that DuckDB reads
SURPLUS_LINES, MAX_SURPLUS = 1000, 100
DEEPEST_LIST = 3


@dataclass(frozen=True)
class Dialect:
    """Dialect of all files of one source. `columns`: names of the columns."""

    header: bool
    encoding: str
    quote: str
    delimiter: str
    columns: tuple[str, ...]

    def options(self) -> dict[str, str]:
        """Return the arguments of DuckDB's `read_csv` as dict name → SQL."""
        columns = ", ".join(f"{quote_literal(name)}: 'VARCHAR'" for name in self.columns)
        return {
            "header": str(self.header).lower(),
            "encoding": quote_literal(self.encoding),
            "quote": quote_literal(self.quote),
            "escape": quote_literal(self.quote),
            "delim": quote_literal(self.delimiter),
            "auto_detect": "false",
            "columns": f"{{{columns}}}",
        }


def detect_dialect(paths: Sequence[Path], source: Source) -> Dialect:
    """Detect the names of the columns, and the delimiter if the user has not set a delimiter.

    `paths`: files of the source. Raises InputError if an option is invalid, or if the files have different columns.
    """
    encoding = _duckdb_encoding(source.encoding)
    quote = '"' if source.quote is None else source.quote
    if len(quote) > 1:
        raise InputError(f"data.quote={quote}", "must be one character, or '' to turn quoting off")
    suffix = suffix_of(paths[0])
    delimiter = {None: DELIMITERS[suffix], "\\t": "\t"}.get(source.delimiter, source.delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"data.delimiter={delimiter}", "must be one character, or null to detect it")
    delimiter = delimiter or _likely_delimiter(paths[0], encoding, quote, suffix)
    columns = [_columns(path, encoding, quote, delimiter, source.header) for path in paths]
    for path, names in zip(paths, columns, strict=True):
        if names != columns[0]:
            raise InputError(
                path,
                f"has the columns {', '.join(names)}, but {paths[0]} has {', '.join(columns[0])}",
                "give files of the same columns",
            )
    return Dialect(source.header, encoding, quote, delimiter, tuple(columns[0]))


def has_long_surplus(path: Path, dialect: Dialect) -> bool:
    """Return True if a line at the beginning of a file has many surplus cells, such as a list without quotes.

    DuckDB stores a copy of a malformed line for each surplus cell, so a file of such lines would fill the memory.
    """
    most = len(dialect.columns) + MAX_SURPLUS
    with suppress(csv.Error), _rows(path, dialect.encoding, dialect.quote, dialect.delimiter) as rows:
        return any(len(row) > most for row in islice(rows, SURPLUS_LINES))
    return False  # a cell is longer than any that DuckDB reads


def lines(encoding: str, *, header: bool, skip: int = 0) -> dict[str, str]:
    """Return `read_csv` arguments with which each line is one cell of the column `line`.

    `skip`: number of lines to skip at the beginning of the file.
    """
    return {
        "columns": "{'line': 'VARCHAR'}",
        "auto_detect": "false",
        "delim": r"'\n'",
        "quote": "''",
        "escape": "''",
        "header": str(header).lower(),
        "skip": str(skip),
        "encoding": quote_literal(_duckdb_encoding(encoding)),
    }


def _duckdb_encoding(encoding: str) -> str:
    """Return the name that DuckDB uses for an encoding. Raises InputError if DuckDB cannot read the encoding."""
    try:
        return ENCODINGS[codecs.lookup(encoding).name]
    except LookupError:
        raise InputError(f"data.encoding={encoding}", "not supported", "use utf-8, latin-1 or utf-16") from None


def _opened(path: Path, encoding: str) -> io.TextIOWrapper:
    if encoding == "utf-16":
        with pa.input_stream(str(path), compression="detect") as beginning:
            if beginning.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise InputError(path, "has no byte order mark, so it is not utf-16", "set data.encoding=utf-8")
    # Invalid bytes are read as � here. DuckDB later reports the lines with invalid bytes.
    stream: Any = pa.input_stream(str(path), compression="detect")
    return io.TextIOWrapper(stream, "utf-8-sig" if encoding == "utf-8" else encoding, errors="replace", newline="")


def _bare(line: str, quote: str) -> str:
    """Remove quoted text and bracketed lists from a line."""
    if quote:
        line = re.sub(rf"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}", "", line)
    for _ in range(DEEPEST_LIST):
        # Each pass removes the innermost pairs of brackets. A bracket that is not closed is left in the line, because
        # otherwise the rest of the line would be removed.
        line = re.sub(r"\[[^\[\]]*\]", "", line)
    return line


def _likely_delimiter(path: Path, encoding: str, quote: str, suffix: str) -> str:
    """Return the delimiter that occurs equally often in the first line and in most other lines.

    Delimiters inside quotes or brackets are not counted. A `.txt` file may hold running text. For a `.txt` file, the
    result is therefore a tab, unless another delimiter occurs equally often in all lines.
    """
    with _opened(path, encoding) as file:
        lines = [line for line in islice(file, SNIFFED_LINES) if line.strip()]
    bare_lines = [_bare(line, quote) for line in lines] or [""]

    def agreement(candidate: str) -> tuple[bool, int, int]:
        counts = [line.count(candidate) for line in bare_lines]
        return counts[0] > 0, counts.count(counts[0]), counts[0]

    best = max(CANDIDATES, key=agreement)
    if suffix == ".txt":
        in_first_line, agreeing, _ = agreement(best)
        return best if in_first_line and agreeing == len(bare_lines) else "\t"
    return best if best in bare_lines[0] else ","


@contextmanager
def _rows(path: Path, encoding: str, quote: str, delimiter: str) -> Iterator[Iterator[list[str]]]:
    """Open a file as rows of cells, which may be as long as the longest line that DuckDB reads."""
    limit = csv.field_size_limit(MAX_LINE_CHARACTERS)
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    try:
        with _opened(path, encoding) as file:
            yield csv.reader(file, delimiter=delimiter, **quoting)
    finally:
        csv.field_size_limit(limit)


def _columns(path: Path, encoding: str, quote: str, delimiter: str, header: bool) -> list[str]:
    """Return the column names that are in the first line of a file.

    A column without a name is named `column0`, `column1` and so on, by its position. In a file without a header, all
    columns are named by their positions.
    """
    try:
        with _rows(path, encoding, quote, delimiter) as rows:
            first_line = next(rows, None)
            first_cells = first_line or next((row for row in rows if row), None)
    except csv.Error as error:
        raise InputError(path, f"line 1 cannot be read: {error}", "fix it, or set data.delimiter, data.quote") from None
    if first_cells is None:
        raise InputError(path, "has no rows", "give a file with a row per sequence")
    if not header:
        return [f"column{position}" for position in range(len(first_cells))]
    if not first_line:  # DuckDB would take the empty line as the header, and the real header as a row
        raise InputError(path, "line 1 is empty", "remove what is before the line with the names of the columns")
    if any("\ufffd" in name for name in first_cells):
        raise InputError(path, f"line 1 is not valid {encoding}", "set data.encoding=latin-1 (or utf-16)")
    names = [name.strip() or f"column{position}" for position, name in enumerate(first_cells)]
    check_names(names, str(path))
    return names
