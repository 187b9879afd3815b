"""What a DuckDB connection of this package may touch: the files that are to be read and its spill folder."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from glob import has_magic

import duckdb

from seqclf.data.reading.casts import quote_literal
from seqclf.data.reading.queries import local_path, scheme_of

HTTP = ("http", "https")
# Without it a table name in a query may be a variable of the Python program.
SAFE = {"python_enable_replacements": "false"}


def connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config=dict(SAFE))


def restrict(connection: duckdb.DuckDBPyConnection, *, paths: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Let the connection read `paths` (globs and URLs too) and what is in `folders`, and lock its configuration.

    Credentials of stores such as s3:// are read from files of DuckDB when they are needed, so a connection that is to
    read from one keeps all access; its configuration is locked all the same.
    """
    paths = list(paths)
    schemes = {scheme for path in paths if (scheme := scheme_of(path)) is not None}
    if not schemes - set(HTTP):
        if schemes:
            _load_http(connection)
        allowed = [entry for path in paths for entry in _allowed(connection, path)]
        named_folders = [name for path in paths if local_path(path).is_dir() for name in (path, str(local_path(path)))]
        connection.execute(f"SET allowed_paths = {_listed(allowed)}")
        connection.execute(f"SET allowed_directories = {_listed([*folders, *named_folders])}")
        connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _allowed(connection: duckdb.DuckDBPyConnection, path: str) -> list[str]:
    """DuckDB checks a glob twice: the pattern itself, and each file that it matches."""
    spellings = list(dict.fromkeys([path, str(local_path(path))]))
    if scheme_of(path) is None and has_magic(path):
        with suppress(duckdb.Error):  # what is not readable is said by the query itself
            found = connection.execute("SELECT file FROM glob(?)", [path]).fetchall()
            return [*spellings, *(file for (file,) in found)]
    return spellings


def _load_http(connection: duckdb.DuckDBPyConnection) -> None:
    """DuckDB loads it by itself at the first URL, but no longer once access is restricted."""
    try:
        connection.execute("LOAD httpfs")
    except duckdb.Error:
        connection.execute("INSTALL httpfs")
        connection.execute("LOAD httpfs")


def _listed(entries: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_literal, entries))}]"
