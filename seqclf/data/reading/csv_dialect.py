"""Dialect of delimited text files, detected from the first lines, and their line endings, made uniform in a copy.

Every cell is read as text. DuckDB's own detection is off: after a malformed line it would guess other columns.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from seqclf.data.reading.sources import Source, suffix_of
from seqclf.data.schema.casts import quote_literal
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError
from seqclf.system.atomic_files import PREFIX

DELIMITERS = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": None}
CANDIDATES = "\t;|,"
ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8", "utf-16": "utf-16", "utf-8-sig": "utf-8"}
SNIFFED_LINES = 20
MAX_LINE_CHARACTERS = 2_000_000  # the longest line that DuckDB reads
MAX_BEGINNING = 16_000_000  # characters of a file that are read here; a row with line breaks in quotes may have no end
SURPLUS_LINES, MAX_SURPLUS = 1000, 100
DEEPEST_LIST = 3


class Dialect(NamedTuple):
    """Dialect of all files of one source. `options`: arguments of `read_csv` as dict name → SQL.

    `has_long_surplus`: True if an early line has many surplus cells, such as a list without quotes.
    """

    options: dict[str, str]
    has_long_surplus: bool


def detect_dialect(paths: Sequence[Path], source: Source) -> Dialect:
    """Detect the names of the columns, and the delimiter if the user has not set one.

    Raises InputError if an option is invalid, or if the files have different columns.
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
    columns, widths = zip(*(_beginning(path, encoding, quote, delimiter, source.header) for path in paths), strict=True)
    for path, names in zip(paths, columns, strict=True):
        if names != columns[0]:
            problem = f"has the columns {', '.join(names)}, but {paths[0]} has {', '.join(columns[0])}"
            raise InputError(path, problem, "give files of the same columns")
    typed = ", ".join(f"{quote_literal(name)}: 'VARCHAR'" for name in columns[0])
    options = {
        "header": str(source.header).lower(),
        "encoding": quote_literal(encoding),
        "quote": quote_literal(quote),
        "escape": quote_literal(quote),
        "delim": quote_literal(delimiter),
        "auto_detect": "false",
        "columns": f"{{{typed}}}",
    }
    return Dialect(options, max(widths) > len(columns[0]) + MAX_SURPLUS)


def lines(encoding: str, skip: int = 0) -> dict[str, str]:
    """Return `read_csv` arguments with which each line is one cell of the column `line`. `skip`: lines to leave out."""
    return {
        "columns": "{'line': 'VARCHAR'}",
        "auto_detect": "false",
        "delim": r"'\n'",
        "quote": "''",
        "escape": "''",
        "header": "false",
        "skip": str(skip),
        "encoding": quote_literal(_duckdb_encoding(encoding)),
    }


def _duckdb_encoding(encoding: str) -> str:
    """Return DuckDB's name of an encoding. Raises InputError if DuckDB cannot read it."""
    try:
        return ENCODINGS[codecs.lookup(encoding).name]
    except LookupError:
        raise InputError(f"data.encoding={encoding}", "not supported", "use utf-8, latin-1 or utf-16") from None


@contextmanager
def first_lines(path: Path, encoding: str) -> Iterator[Iterator[str]]:
    """Open a text file as an iterator over the lines of its first `MAX_BEGINNING` characters."""

    def lines(file: io.TextIOWrapper) -> Iterator[str]:
        left = MAX_BEGINNING
        while left > 0 and (line := file.readline(left)):
            left -= len(line)
            yield line

    with opened(path, encoding) as file:
        yield lines(file)


def opened(path: Path, encoding: str) -> io.TextIOWrapper:
    """Open a text file. Raises InputError if it should be UTF-16 and has no byte order mark."""
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
        # The innermost pairs of brackets. An open bracket stays, or it would remove the rest of the line.
        line = re.sub(r"\[[^\[\]]*\]", "", line)
    return line


def _likely_delimiter(path: Path, encoding: str, quote: str, suffix: str) -> str:
    """Return the delimiter, outside of quotes and brackets, that is as frequent in the first line as in most others.

    A `.txt` file may hold running text, so there it must be so in all lines, or else it is a tab.
    """
    with first_lines(path, encoding) as file:
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


def _beginning(path: Path, encoding: str, quote: str, delimiter: str, header: bool) -> tuple[list[str], int]:
    """Return the column names (`column0` and so on where there is none), and the most cells of later lines."""
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    limit = csv.field_size_limit(MAX_LINE_CHARACTERS)
    width = 0
    try:
        with first_lines(path, encoding) as file:
            rows = csv.reader(file, delimiter=delimiter, **quoting)
            first_line = next(rows, None)
            first_cells = first_line or next((row for row in rows if row), None)
            with suppress(csv.Error):  # a cell is longer than any that DuckDB reads
                width = max(map(len, islice(rows, SURPLUS_LINES)), default=0)
    except csv.Error as error:
        raise InputError(path, f"line 1 cannot be read: {error}", "fix it, or set data.delimiter, data.quote") from None
    finally:
        csv.field_size_limit(limit)
    if first_cells is None:
        raise InputError(path, "has no rows", "give a file with a row per sequence")
    if not header:
        return [f"column{position}" for position in range(len(first_cells))], width
    if not first_line:  # DuckDB would take the empty line as the header, and the real header as a row
        raise InputError(path, "line 1 is empty", "remove what is before the line with the names of the columns")
    if any("\ufffd" in name for name in first_cells):
        raise InputError(path, f"line 1 is not valid {encoding}", "set data.encoding=latin-1 (or utf-16)")
    names = [name.strip() or f"column{position}" for position, name in enumerate(first_cells)]
    check_names(names, str(path))
    return names, width


SCRATCH = "reading-"  # beginning of the name of a reader's temporary folder, after the general prefix
COPIES = "lines"  # folder with copies in the temporary folder
# Part of a copy's path before the original path; also a regex in DuckDB
COPY = rf"[^\s'\"]*{re.escape(PREFIX)}{SCRATCH}\w+/{COPIES}"
BLOCK = 2**20
# DuckDB reports a line of more than 2 MB. Where it stores malformed lines, it drops a line of more than its buffer of
# 32 MB without an error.
MAX_LINE_BYTES = 2**24
LONG_LINE = "longer than the 2 MB a line of text can have"
LONG_LINE_REMEDY = "remove it, or write such data as JSON lines, Parquet or Arrow"


def uniform(paths: Sequence[Path], folder: Path, encoding: str) -> list[Path]:
    """Return `paths`, with a copy below `folder` for each file whose lines end in different ways, unless it is UTF-16.

    DuckDB reads others only in a lenient mode, which drops surplus cells without an error.
    """
    return [_copied(path, folder) if is_mixed(path, path.stat().st_mtime, encoding) else path for path in paths]


def original(text: str) -> str:
    """In a text, replace the path of each copy by the path of the original file."""
    return re.sub(COPY, "", text)


@lru_cache(maxsize=64)
def is_mixed(path: Path, state: float, encoding: str) -> bool:
    """Return True if lines end in different ways, False for UTF-16. Raises InputError for one that DuckDB drops."""
    unix = windows = old_mac = without_end = 0
    last_byte = b""
    is_wide = encoding == "utf-16"
    file: Any = opened(path, encoding) if is_wide else pa.input_stream(str(path), compression="detect")
    with file as stream:
        while block := stream.read(BLOCK).encode() if is_wide else stream.read(BLOCK):
            # A line ending \r\n may be divided between two blocks.
            pairs = block.count(b"\r\n") + (last_byte == b"\r" and block[:1] == b"\n")
            windows += pairs
            unix += block.count(b"\n") - pairs
            old_mac += block.count(b"\r") - pairs
            last_byte = block[-1:]
            without_end = 0 if b"\n" in block or b"\r" in block else without_end + len(block)
            if without_end > MAX_LINE_BYTES:
                raise InputError(f"{path}: line {unix + windows + old_mac + 1}", LONG_LINE, LONG_LINE_REMEDY)
    return not is_wide and (unix > 0) + (windows > 0) + (old_mac > 0) > 1


def copy_path(path: Path, folder: Path) -> Path:
    """Return the path of a new copy of a file. The folders of the copy are created."""
    copy = Path(f"{folder}{path.absolute()}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy


def _copied(path: Path, folder: Path) -> Path:
    copy = copy_path(path, folder)
    source: Any = pa.input_stream(str(path), compression="detect")
    target: Any = pa.output_stream(str(copy), compression="detect")
    with (
        io.TextIOWrapper(source, "latin-1", newline=None) as lines,  # latin-1 keeps the bytes of any encoding
        io.TextIOWrapper(target, "latin-1", newline="") as uniform_lines,
    ):
        shutil.copyfileobj(lines, uniform_lines, BLOCK)
    return copy
