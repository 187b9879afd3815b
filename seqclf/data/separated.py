"""CSV and its kin: the first lines say which columns there are, and every cell is read as text.

DuckDB's own detection is left out: over a malformed line it silently guesses other columns instead of naming the line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.canonical import literal
from seqclf.data.schema import check_names
from seqclf.errors import InputError

DELIMITERS = {".csv": None, ".tsv": "\t", ".tab": "\t", ".txt": None}
CANDIDATES = "\t;|,"
ENCODINGS = {"utf-8": "utf-8", "iso8859-1": "latin-1", "ascii": "utf-8", "utf-16": "utf-16", "utf-8-sig": "utf-8"}
LOOKED_AT_LINES = 20
LONGEST_LINE = 2_000_000  # characters; DuckDB reads no longer one
LONGEST_REJECTED = 50_000  # bytes; of a malformed line DuckDB keeps a copy per column, in time of their square
BLOCK = 2**20
DEEPEST_LIST = 3


def options(
    paths: Sequence[Path], suffix: str, *, header: bool, encoding: str, quote: str | None, delimiter: str | None
) -> dict[str, str]:
    """Arguments of DuckDB's `read_csv` as SQL, for files of the same columns; without `paths`, for a URL, which only
    DuckDB can look into. `suffix`: which kind the files are.
    """
    known = _known_encoding(encoding)
    quote = '"' if quote is None else quote
    if len(quote) > 1:
        raise InputError(f"data.quote={quote}: must be one character, or '' to turn quoting off")
    delimiter = {None: DELIMITERS[suffix], "\\t": "\t"}.get(delimiter, delimiter)
    if delimiter is not None and len(delimiter) != 1:
        raise InputError(f"data.delimiter={delimiter}: must be one character, or null to find it out")
    chosen = {
        "header": str(header).lower(),
        "encoding": literal(known),
        "quote": literal(quote),
        "escape": literal(quote),
    }
    if not paths:
        return {**chosen, "all_varchar": "true", **({"delim": literal(delimiter)} if delimiter else {})}
    delimiter = delimiter or _likely_delimiter(paths[0], known, quote, suffix)
    columns = [_columns(path, known, quote, delimiter, header) for path in paths]
    for path, others in zip(paths, columns, strict=True):
        if others != columns[0]:
            raise InputError(
                f"{path}: has the columns {', '.join(others)}, but {paths[0]} has {', '.join(columns[0])}; "
                "give files of the same columns"
            )
    named = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in columns[0])
    return {**chosen, "auto_detect": "false", "delim": literal(delimiter), "columns": f"{{{named}}}"}


class LineFacts(NamedTuple):
    """What the lines of a file are like: whether some are `long`, and whether their ends are `mixed`."""

    long: bool
    mixed: bool


@lru_cache(maxsize=64)
def line_facts(path: Path, state: float) -> LineFacts:
    """Looks at every line, at the speed of the disk. `state`: of the file, to remember the answer by."""
    begun = longest = windows = ends = 0
    last = b""
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            letters = np.frombuffer(last + block, np.uint8)
            found = np.flatnonzero(letters == ord("\n"))
            found = found[found >= len(last)]
            if len(found):
                lengths = np.diff(found, prepend=len(last) - begun - 1) - 1
                longest = max(longest, int(lengths.max()))
                begun = len(letters) - int(found[-1]) - 1
                ends += len(found)
                windows += int((letters[found[found > 0] - 1] == ord("\r")).sum())
            else:
                begun += len(block)
            last = block[-1:]
    return LineFacts(max(longest, begun) > LONGEST_REJECTED, 0 < windows < ends)


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
        "encoding": literal(_known_encoding(encoding)),
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


def _columns(path: Path, encoding: str, quote: str, delimiter: str, header: bool) -> list[str]:
    """The names in the first line, or `column0`, `column1`, … where it is not a header or leaves one out."""
    quoting: dict[str, Any] = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        with _opened(path, encoding) as file:
            rows = csv.reader(file, delimiter=delimiter, **quoting)
            began = next(rows, None)
            first = began or next((row for row in rows if row), None)
    except csv.Error as error:
        raise InputError(
            f"{path}: line 1 cannot be read: {error}; mend it, or set data.delimiter, data.quote"
        ) from None
    finally:
        csv.field_size_limit(limit)
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
