"""Sandboxed DuckDB connections, which read the files of one source and their spill folder, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from glob import has_magic

import duckdb

from seqclf.data.reading.queries import STORES, local_path, scheme_of
from seqclf.data.schema.casts import quote_literal

HTTP = ("http", "https")


def connect() -> duckdb.DuckDBPyConnection:
    """Open an in-memory database, which may read any file until it is restricted."""
    # By default, DuckDB would read the Python variable of that name for a table that does not exist.
    return duckdb.connect(config={"python_enable_replacements": "false"})


def restrict(connection: duckdb.DuckDBPyConnection, *, paths: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Let the connection read only `paths` (globs and URLs too) and the files in `folders`, and lock its settings.

    If a path is in one of the `STORES`, every file stays readable, because DuckDB reads the credentials from files when
    it needs them. The settings are locked in that case too.
    """
    paths = list(paths)
    schemes = {scheme for path in paths if (scheme := scheme_of(path)) is not None}
    if not schemes & set(STORES):
        if schemes & set(HTTP):
            _load_http(connection)
        allowed_paths = [entry for path in paths for entry in _allowed(connection, path)]
        named_folders = [name for path in paths if local_path(path).is_dir() for name in (path, str(local_path(path)))]
        connection.execute(f"SET allowed_paths = {_sql_list(allowed_paths)}")
        connection.execute(f"SET allowed_directories = {_sql_list([*folders, *named_folders])}")
        connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _allowed(connection: duckdb.DuckDBPyConnection, path: str) -> list[str]:
    """Every spelling of a path that DuckDB checks: for a glob, the pattern itself and each file that it matches."""
    spellings = list(dict.fromkeys([path, str(local_path(path))]))
    if scheme_of(path) is None and has_magic(path):
        with suppress(duckdb.Error):  # the query itself will report what cannot be read
            rows = connection.execute("SELECT file FROM glob(?)", [path]).fetchall()
            return [*spellings, *(file for (file,) in rows)]
    return spellings


def _load_http(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the extension for URLs. DuckDB would do so at the first URL, but not once access is restricted."""
    try:
        connection.execute("LOAD httpfs")
    except duckdb.Error:
        connection.execute("INSTALL httpfs")
        connection.execute("LOAD httpfs")


def _sql_list(entries: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_literal, entries))}]"
