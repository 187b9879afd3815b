"""SQL of the user: one statement that only reads, and the files that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from seqclf.errors import InputError

QUERY = re.compile(r"\s*(select|with|from|pivot|unpivot)\s", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+]*)://", re.IGNORECASE)
FILE_URL = re.compile(r"file:(//(localhost)?)?(?=/)")  # as DuckDB reads it: in lower case, nothing is decoded
NO_READERS = ("unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row")


class Named(NamedTuple):
    """A path, glob or URL in a query. `function`: the table function that gets it, "" for a table."""

    path: str
    function: str


def subquery(text: str, where: str) -> str:
    """The query as it can stand in parentheses; raises InputError unless it is one statement that only reads.

    DuckDB's own parser decides. A statement that writes inside WITH counts as a SELECT for it; DuckDB refuses that in
    parentheses. `where`: the key or file of the query, for error lines.
    """
    try:
        text.encode()
        statements = duckdb.extract_statements(text)
    except (duckdb.Error, UnicodeError) as error:
        raise InputError(f"{where}: cannot be read: {str(error).splitlines()[0]}; mend the query") from None
    if not statements:
        raise InputError(f"{where}: holds no query; write one SELECT")
    if len(statements) > 1:
        raise InputError(f"{where}: holds {len(statements)} statements; write one SELECT")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise InputError(f"{where}: a PIVOT must list its columns: PIVOT … ON column IN ('a', 'b', …) …")
    if kind != "SELECT":
        raise InputError(f"{where}: is a statement of kind {kind}; write one SELECT, which only reads")
    return _without_end(statements[0].query)


def _without_end(statement: str) -> str:
    """The statement without the semicolons and comments after it. `tokenize` counts in bytes."""
    data = statement.encode()
    end = len(data)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        if kind.name != "comment" and data[offset:end].strip() != b";":
            break
        end = offset
    return data[:end].decode()


def named_paths(text: str) -> tuple[str, ...]:
    """Paths, globs and URLs that a query names: tables that may be files, and texts given to table functions.

    Empty for a query that cannot be parsed.
    """
    return tuple(dict.fromkeys(named.path for named in named_files(text)))


@lru_cache(maxsize=64)
def named_files(text: str) -> tuple[Named, ...]:
    """As `named_paths`, with the function that reads each."""
    return tuple(dict.fromkeys(named for node in _nodes(_parsed(text)) for named in _named(node)))


@lru_cache(maxsize=64)
def cte_names(text: str) -> frozenset[str]:
    """Names that WITH gives to sub-queries, anywhere in a query, in lower case as DuckDB ignores it."""
    maps = [node["cte_map"]["map"] for node in _nodes(_parsed(text)) if node.get("cte_map")]
    return frozenset(entry["key"].casefold() for entries in maps for entry in entries)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """The syntax tree of DuckDB's parser; empty for a query that cannot be parsed."""
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        return json.loads(row[0]) if row else {}
    except (duckdb.Error, TypeError, UnicodeError, RecursionError):
        return {}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Every dict of a tree, the outer one first. Without recursion: a UNION of 500 files is a deep tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += reversed(node.values())
        elif isinstance(node, list):
            waiting += reversed(node)


def _named(node: dict[str, Any]) -> Iterator[Named]:
    if node.get("type") == "BASE_TABLE":
        parts = (node.get(key) for key in ("catalog_name", "schema_name", "table_name"))
        yield Named(".".join(part for part in parts if part), "")
    elif node.get("type") == "TABLE_FUNCTION":
        function = node["function"]["function_name"].casefold()
        if function not in NO_READERS:
            yield from (Named(text, function) for text in _texts(node["function"]["arguments"]))


def _texts(arguments: list[dict[str, Any]]) -> Iterator[str]:
    """Arguments that are a text, or a list of texts. One put together of parts is not named."""
    for argument in arguments:
        expression = argument["expression"]
        literals = expression.get("literal", {})
        if literals.get("kind") == "STRING":
            yield literals["text"]
        elif expression.get("function_name") == "list_value":
            yield from _texts(expression["arguments"])


def scheme_of(path: str) -> str | None:
    """The scheme of a URL, in lower case; None for a path and for `file://`."""
    match = SCHEME.match(path)
    return match[1].lower() if match and match[1].lower() != "file" else None


def local_path(path: str) -> Path:
    """The path of a file or folder as DuckDB finds it: without `file://`, the home folder in place of `~`."""
    return Path(FILE_URL.sub("", path)).expanduser() if path.startswith(("file:/", "~/")) else Path(path)
