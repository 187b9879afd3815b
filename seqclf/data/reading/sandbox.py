"""Sandboxed DuckDB connections.

A sandboxed connection can access only the files of one source and DuckDB's spill folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from glob import has_magic

import duckdb

from seqclf.data.reading.queries import STORES, local_path, scheme_of
from seqclf.data.schema.casts import quote_literal

HTTP = ("http", "https")


def connect() -> duckdb.DuckDBPyConnection:
    """Open a connection to an in-memory database. The connection can read any file until `restrict` is called."""
    # By default, DuckDB would read a Python variable if a query names a table that does not exist.
    return duckdb.connect(config={"python_enable_replacements": "false"})


def restrict(connection: duckdb.DuckDBPyConnection, *, paths: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Restrict a connection to the given paths and to the files in `folders`, and lock its settings.

    A path may also be a glob or a URL. If a path is a URL of an object store, the connection can still read every file,
    because DuckDB must read credentials from files. The settings of the connection are locked even if it can read every
    file.
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
    """Return every form of a path that DuckDB checks. For a glob, also return each file that matches the glob."""
    spellings = list(dict.fromkeys([path, str(local_path(path))]))
    if scheme_of(path) is None and has_magic(path):
        with suppress(duckdb.Error):  # if the files cannot be read, the query itself reports the error
            rows = connection.execute("SELECT file FROM glob(?)", [path]).fetchall()
            return [*spellings, *(file for (file,) in rows)]
    return spellings


def _load_http(connection: duckdb.DuckDBPyConnection) -> None:
    """Load the DuckDB extension that reads URLs.

    The extension is loaded here, because DuckDB cannot load it after the connection is restricted.
    """
    try:
        connection.execute("LOAD httpfs")
    except duckdb.Error:
        connection.execute("INSTALL httpfs")
        connection.execute("LOAD httpfs")


def _sql_list(entries: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_literal, entries))}]"
