"""CSV and its kin: the first lines say which columns there are, and every cell is read as text.

DuckDB's own detection is left out: over a malformed line it silently guesses other columns instead of naming the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.data.reading.casts import quote_literal
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

DELIMITERS = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": None}
CANDIDATES = "\t;|,"
ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8", "utf-16": "utf-16", "utf-8-sig": "utf-8"}
LOOKED_AT_LINES = 20
LONGEST_LINE = 2_000_000  # characters; DuckDB reads no longer one
MOST_KEPT = 50_000_000  # characters; of a malformed line DuckDB keeps a copy per surplus cell, in ten times the memory
BLOCK = 2**20
DEEPEST_LIST = 3


@dataclass(frozen=True)
class Layout:
    """How the text files of one source are written; no `delimiter` and `columns` where nobody could look: of a URL."""

    header: bool
    encoding: str
    quote: str
    delimiter: str | None
    columns: tuple[str, ...] | None

    def options(self) -> dict[str, str]:
        """Arguments of DuckDB's `read_csv` as SQL."""
        chosen = {
            "header": str(self.header).lower(),
            "encoding": quote_literal(self.encoding),
            "quote": quote_literal(self.quote),
            "escape": quote_literal(self.quote),
        }
        if self.delimiter is not None:
            chosen["delim"] = quote_literal(self.delimiter)
        if self.columns is None:
            return {**chosen, "all_varchar": "true"}
        named = ", ".join(f"{quote_literal(name)}: 'VARCHAR'" for name in self.columns)
        return {**chosen, "auto_detect": "false", "columns": f"{{{named}}}"}


def layout(
    paths: Sequence[Path], suffix: str, *, header: bool, encoding: str, quote: str | None, delimiter: str | None
) -> Layout:
    """The layout of files of the same columns, found out where the user has not said it. `suffix`: their kind."""
    known = _known_encoding(encoding)
    quote = '"' if quote is None else quote
    if len(quote) > 1:
        raise InputError(f"data.quote={quote}: must be one character, or '' to turn quoting off")
    delimiter = {None: DELIMITERS[suffix], "\\t": "\t"}.get(delimiter, delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"data.delimiter={delimiter}: must be one character, or null to find it out")
    if not paths:
        return Layout(header, known, quote, delimiter, None)
    delimiter = delimiter or _likely_delimiter(paths[0], known, quote, suffix)
    columns = [_columns(path, known, quote, delimiter, header) for path in paths]
    for path, others in zip(paths, columns, strict=True):
        if others != columns[0]:
            raise InputError(
                f"{path}: has the columns {', '.join(others)}, but {paths[0]} has {', '.join(columns[0])}; "
                "give files of the same columns"
            )
    return Layout(header, known, quote, delimiter, tuple(columns[0]))


@lru_cache(maxsize=64)
def surplus(path: Path, state: float, layout: Layout) -> int:
    """How many characters DuckDB would keep of lines with surplus cells, counted until it is more than `MOST_KEPT`.

    `state`: of the file, to remember the answer by.
    """
    if layout.delimiter is None or layout.columns is None or not _has_surplus(path, layout):
        return 0
    found = 0
    # A cell of over 2 MB ends the count: DuckDB does not keep its line.
    with suppress(csv.Error), _long_cells(), _opened(path, layout.encoding) as file:
        for row in csv.reader(file, delimiter=layout.delimiter, **_quoting(layout.quote)):
            cells = len(row) - len(layout.columns)
            if cells > 0:
                found += cells * (sum(map(len, row)) + len(row))
                if found > MOST_KEPT:
                    break
    return found


def _has_surplus(path: Path, layout: Layout) -> bool:
    """Whether the file holds more delimiters, quoted or not, than its columns need; at the speed of the disk."""
    mark = (layout.delimiter or "").encode("latin-1" if layout.encoding == "latin-1" else "utf-8")
    marks = lines = 0
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            marks += block.count(mark)
            lines += block.count(b"\n")
    return marks > lines * (len(layout.columns or ()) - 1)


def lines(encoding: str, *, header: bool, skip: int = 0) -> dict[str, str]:
    """Arguments of `read_csv` that give each line whole, as the column `line`."""
    return {
        "columns": "{'line': 'VARCHAR'}",
        "auto_detect": "false",
        "delim": r"'\n'",
        "quote": "''",
        "escape": "''",
        "header": str(header).lower(),
        "skip": str(skip),
        "encoding": quote_literal(_known_encoding(encoding)),
    }


def _known_encoding(encoding: str) -> str:
    try:
        return ENCODINGS[codecs.lookup(encoding).name]
    except LookupError:
        raise InputError(f"data.encoding={encoding}: not supported; use utf-8, latin-1 or utf-16") from None


def _opened(path: Path, encoding: str) -> io.TextIOWrapper:
    if encoding == "utf-16":
        with pa.input_stream(str(path), compression="detect") as beginning:
            if beginning.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise InputError(f"{path}: has no byte order mark, so it is not utf-16; set data.encoding=utf-8")
    # What is not valid is shown as �: DuckDB will name its line.
    stream: Any = pa.input_stream(str(path), compression="detect")
    return io.TextIOWrapper(stream, "utf-8-sig" if encoding == "utf-8" else encoding, errors="replace", newline="")


def _bare(line: str, quote: str) -> str:
    """A line without what stands in quotes and brackets, nested ones too."""
    if quote:
        line = re.sub(rf"{re.escape(quote)}[^{re.escape(quote)}]*{re.escape(quote)}", "", line)
    for _ in range(DEEPEST_LIST):
        line = re.sub(r"\[[^\[\]]*\]", "", line)  # innermost first: a bracket that is never closed costs nothing
    return line


def _likely_delimiter(path: Path, encoding: str, quote: str, suffix: str) -> str:
    """The candidate that most lines hold as often as the first line does, outside of quotes and brackets.

    A `.txt` may be running text: there all lines must agree, and a tab is assumed else.
    """
    with _opened(path, encoding) as file:
        lines = [line for line in islice(file, LOOKED_AT_LINES) if line.strip()]
    bare = [_bare(line, quote) for line in lines] or [""]

    def agreement(mark: str) -> tuple[bool, int, int]:
        counts = [line.count(mark) for line in bare]
        return counts[0] > 0, counts.count(counts[0]), counts[0]

    best = max(CANDIDATES, key=agreement)
    if suffix == ".txt":
        found, agreeing, _ = agreement(best)
        return best if found and agreeing == len(bare) else "\t"
    return best if best in bare[0] else ","


def _quoting(quote: str) -> dict[str, Any]:
    return {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}


@contextmanager
def _long_cells() -> Iterator[None]:
    """Let Python's reader take cells as long as DuckDB's does."""
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _columns(path: Path, encoding: str, quote: str, delimiter: str, header: bool) -> list[str]:
    """The names in the first line, or `column0`, `column1`, … where it is not a header or leaves one out."""
    try:
        with _long_cells(), _opened(path, encoding) as file:
            rows = csv.reader(file, delimiter=delimiter, **_quoting(quote))
            began = next(rows, None)
            first = began or next((row for row in rows if row), None)
    except csv.Error as error:
        raise InputError(
            f"{path}: line 1 cannot be read: {error}; mend it, or set data.delimiter, data.quote"
        ) from None
    if first is None:
        raise InputError(f"{path}: has no rows; give a file with a row per sequence")
    if not header:
        return [f"column{position}" for position in range(len(first))]
    if not began:  # DuckDB would take the empty line for the header, and the header for a row
        raise InputError(f"{path}: line 1 is empty; remove what is before the line with the names of the columns")
    if any("\ufffd" in name for name in first):
        raise InputError(f"{path}: line 1 is not valid {encoding}; set data.encoding=latin-1 (or utf-16)")
    names = [name.strip() or f"column{position}" for position, name in enumerate(first)]
    check_names(names, str(path))
    return names
