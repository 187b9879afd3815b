"""JSON files with one row per line, or with one array of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import ClassVar

import duckdb

from seqclf.data.reading import sandbox
from seqclf.data.reading.format import Files, Format, TableSql, describe_columns, scan
from seqclf.data.reading.sources import SourceState, source_state
from seqclf.data.schema.casts import quote_identifier, quote_literal


class JsonLines(Format):
    """Format of JSON files. The column types are inferred from all rows."""

    endings: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    def table(self, files: Files) -> TableSql:
        read = scan("read_json", files.sql_list, {**files.partitions, "sample_size": "-1"}, False)
        types = _types(read, files.sql_list, source_state(files.source))
        columns = ", ".join(f"{quote_literal(name)}: {quote_literal(kind)}" for name, kind in types.items())
        return partial(scan, "read_json", files.sql_list, {**files.partitions, "columns": f"{{{columns}}}"})


@lru_cache(maxsize=64)
def _types(read: str, files: str, state: SourceState) -> dict[str, str]:
    """Return dict column → DuckDB type. Dates, times, UUIDs and integers beyond 64 bits are texts.

    `state`: state of the files, as a key of the cache.
    """
    # All rows are read to infer the types. The types are cached, because the survey of a file needs them a second time.
    with sandbox.connect() as connection:
        types = describe_columns(connection, read)
        wide = _wide_columns(connection, files, types)
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    wider = rf"{dates}|\b(DOUBLE|HUGEINT)\b"
    return {name: re.sub(wider if name in wide else dates, "VARCHAR", kind) for name, kind in types.items()}


def _wide_columns(connection: duckdb.DuckDBPyConnection, files: str, types: Mapping[str, str]) -> set[str]:
    """Return the columns of whole numbers of which one may have more than 64 bits, so that floats would round them."""
    names = [name for name, kind in types.items() if kind.removesuffix("[]") in ("DOUBLE", "HUGEINT")]
    if not names:
        return set()
    columns = ", ".join(f"{quote_literal(name)}: 'JSON'" for name in names)
    texts = (f"CAST({quote_identifier(name)} AS VARCHAR)" for name in names)
    tests = (
        f"bool_or(regexp_matches({text}, '[0-9]{{19}}')) AND NOT bool_or(regexp_matches({text}, '[.eE]'))"
        for text in texts
    )
    (found,) = connection.sql(f"SELECT {', '.join(tests)} FROM read_json({files}, columns = {{{columns}}})").fetchall()
    return {name for name, is_wide in zip(names, found, strict=True) if is_wide}
