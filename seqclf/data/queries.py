"""SQL of the user: one statement that only reads, and the files that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import duckdb

from seqclf.errors import InputError

QUERY = re.compile(r"\s*(select|with|from|pivot|unpivot)\s", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+]*)://", re.IGNORECASE)


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


@lru_cache(maxsize=64)
def named_paths(text: str) -> tuple[str, ...]:
    """Paths, globs and URLs that a query names: tables that may be files, and texts given to table functions.

    Empty for a query that cannot be parsed.
    """
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        parsed = json.loads(row[0]) if row else {}
    except (duckdb.Error, TypeError, UnicodeError, RecursionError):
        return ()
    return tuple(dict.fromkeys(path for node in _nodes(parsed) for path in _paths(node)))


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


def _paths(node: dict[str, Any]) -> Iterator[str]:
    if node.get("type") == "BASE_TABLE":
        parts = (node.get(key) for key in ("catalog_name", "schema_name", "table_name"))
        yield ".".join(part for part in parts if part)
    elif node.get("type") == "TABLE_FUNCTION":
        yield from _texts(node["function"]["arguments"])


def _texts(arguments: list[dict[str, Any]]) -> Iterator[str]:
    """Arguments that are a text, or a list of texts. One put together of parts is not named."""
    for argument in arguments:
        expression = argument["expression"]
        literal = expression.get("literal", {})
        if literal.get("kind") == "STRING":
            yield literal["text"]
        elif expression.get("function_name") == "list_value":
            yield from _texts(expression["arguments"])


def scheme_of(path: str) -> str | None:
    """The scheme of a URL, in lower case; None for a path and for `file://`."""
    match = SCHEME.match(path)
    return match[1].lower() if match and match[1].lower() != "file" else None
