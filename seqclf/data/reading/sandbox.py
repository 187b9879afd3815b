"""Sandboxed DuckDB connections, which can access only the files of one source and DuckDB's spill folder."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb

from seqclf.data.schema.casts import quote_literal


def connect() -> duckdb.DuckDBPyConnection:
    """Open an in-memory database, which can read any file until `restrict` is called."""
    # By default, DuckDB would read a Python variable if a query names a table that does not exist.
    return duckdb.connect(config={"python_enable_replacements": "false"})


def restrict(connection: duckdb.DuckDBPyConnection, folders: Iterable[str]) -> None:
    """Restrict a connection to the files in `folders`, and lock its settings."""
    connection.execute(f"SET allowed_directories = [{', '.join(map(quote_literal, folders))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
