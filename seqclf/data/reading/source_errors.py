"""Errors of DuckDB and Arrow, put into one line that names the file and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from seqclf.data.reading.formats import line_endings
from seqclf.data.reading.queries import named_paths
from seqclf.data.reading.sources import Source, query_text
from seqclf.errors import InputError

NOT_UTF8 = re.compile(r"invalid (unicode|utf-?8)|not utf-8|byte sequence", re.IGNORECASE)
FORBIDDEN_PATH = re.compile(r'Cannot access (?:file|directory) "(.*?)" - file system operations are disabled')
LINE_REMEDY = "fix the line, or set data.delimiter, data.quote (data.quote='' turns quoting off)"
LONG_LINE = "longer than the 2 MB a line of text can have"
LONG_LINE_REMEDY = "remove it, or write such data as JSON lines, Parquet or Arrow"


@contextmanager
def explain_errors(source: Source) -> Iterator[None]:
    """Turn errors of DuckDB, Arrow and the file system into an InputError about `source`."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        # Past the first record batch, errors of DuckDB arrive through Arrow, as OSError or ArrowInvalid.
        raise _explanation(source, line_endings.original(str(error))) from None


def _explanation(source: Source, text: str) -> InputError:
    """Return the error for the user. `text`: the message of DuckDB or Arrow."""
    line = re.search(r"CSV Error on Line: (\d+)", text)
    where = _location(source, text)
    if forbidden := FORBIDDEN_PATH.search(text):
        return InputError(where, *_forbidden(source, forbidden[1]))
    if extension := re.search(r'extension "?\'?(\w+)', text):
        return InputError(
            f"{source.key}={source.path}",
            f"needs DuckDB's extension '{extension[1]}', which is not installed and cannot be fetched",
            f"run INSTALL {extension[1]} in DuckDB once with a network, or copy the files here",
        )
    if NOT_UTF8.search(text):
        return InputError(where, f"not valid {source.encoding}", "set data.encoding=latin-1 (or utf-16)")
    if "Maximum line size" in text:
        return InputError(where, LONG_LINE, LONG_LINE_REMEDY)
    if "Out of Memory" in text or "failed to allocate" in text.lower():
        problem = f"data.memory_limit={source.memory_limit} is too little to read it"
        return InputError(where, problem, "raise data.memory_limit")
    if "memory limit" in text or "Memory must have" in text or "unit for memory" in text.lower():
        return InputError(f"data.memory_limit={source.memory_limit}", "must be a size such as 2GB")
    lines = [part.strip() for part in text.splitlines() if part.strip()] or ["unknown error"]
    if line:
        details = [part for part in lines if part.startswith(("Expected Number", "Value with unterminated"))]
        return InputError(where, details[0].strip(" .") if details else "is malformed", LINE_REMEDY)
    reason = re.sub(r"^([A-Z]\w* )+Error: | in file \"[^\"]*\",?", "", lines[0]).rstrip(" .")
    remedy = f"fix {'the query' if query_text(source) else 'or replace the file'}"
    return InputError(where, f"cannot be read: {reason}", remedy)


def _location(source: Source, text: str) -> str:
    """The file and line that an error names, else the source."""
    file = re.search(r"^\s*file ?= ?(.+)$", text, re.MULTILINE)
    line = re.search(r"CSV Error on Line: (\d+)", text)
    return f"{file[1].strip() if file else source}{f': line {line[1]}' if line else ''}"


def _forbidden(source: Source, path: str) -> tuple[str, str]:
    """Return the problem and the remedy for a path that the sandbox refused."""
    path = path.partition("/**/")[0]  # DuckDB tries a name that is no file as a folder
    if path in named_paths(query_text(source) or ""):
        return f"no file matches '{path}'", "fix the query"
    return f"reads '{path}', which it does not name", "write the path of each file as one text in quotes"
