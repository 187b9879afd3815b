"""JSON files with one row per line, or with one array of rows."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import ClassVar

import duckdb

from seqclf.data.reading import sandbox
from seqclf.data.reading.format import Files, Format, TableSql, describe_columns, scan
from seqclf.data.reading.sources import source_digest
from seqclf.data.schema.casts import quote_identifier, quote_literal
from seqclf.data.schema.cell_types import MAX_INTEGER


class JsonLines(Format):
    """Format of JSON files. The column types are inferred from all rows."""

    endings: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")
    remote: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        read = scan("read_json", files.sql_list, {**files.partitions, "sample_size": "-1"}, False)
        types = _types(read, files.sql_list, source_digest(files.source)) if files.paths else {}
        columns = ", ".join(f"{quote_literal(name)}: {quote_literal(kind)}" for name, kind in types.items())
        options = {**files.partitions, **({"columns": f"{{{columns}}}"} if types else {})}
        return partial(scan, "read_json", files.sql_list, options)


@lru_cache(maxsize=64)
def _types(read: str, files: str, state: str) -> dict[str, str]:
    """Return the column types of JSON files as dict column name → DuckDB type. Dates, times, UUIDs and whole numbers of
    more than 64 bits are read as text.

    `state`: state of the files. The types of unchanged files are not inferred again, because the result is cached.
    """
    # All rows are read to infer the types. The types are cached, because the survey of a file needs them a second time.
    with sandbox.connect() as connection:
        types = describe_columns(connection, read)
        wide = {name for name, kind in types.items() if _holds_wide(connection, files, name, kind)}
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    wider = rf"{dates}|\b(DOUBLE|HUGEINT)\b"
    return {name: re.sub(wider if name in wide else dates, "VARCHAR", kind) for name, kind in types.items()}


def _holds_wide(connection: duckdb.DuckDBPyConnection, files: str, name: str, kind: str) -> bool:
    """Return True for a column of whole numbers of which one has more than 64 bits, so that floats would round them."""
    if kind.removesuffix("[]") not in ("DOUBLE", "HUGEINT"):
        return False
    column = quote_identifier(name)
    values = f"unnest({column})" if kind.endswith("]") else column
    rows = f"read_json({files}, columns = {{{quote_literal(name)}: {quote_literal(kind)}}})"
    query = f"FROM (SELECT {values} AS value FROM {rows})"
    if connection.sql(f"{query} WHERE value <> trunc(value) LIMIT 1").fetchall():
        return False
    ((largest,),) = connection.sql(f"SELECT max(abs(value)) {query}").fetchall()
    return largest is not None and largest > MAX_INTEGER
