"""The option `data.query`: checks that it is one SELECT over the table `input`, and the sandbox in which it runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import duckdb

from seqclf.data.schema.casts import quote_literal
from seqclf.errors import InputError, first_line
from seqclf.system.json_result import JsonObject

INPUT = "input"
LIKE_A_FILE = re.compile(r"[./:\\*?\[\]]")
TABLE_NAME = ("catalog_name", "schema_name", "table_name")
NOT_READERS = ("unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row")
REORDERING = ("JOIN", "PIVOT", "RECURSIVE_CTE_NODE", "DISTINCT_MODIFIER")
# Functions that return a random value or the current time, and SQL keywords for the current time.
TIME_WORDS = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
CHANCE = ("random", "setseed", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval")
CLOCK = ("today", "now", "get_current_time", "get_current_timestamp", "transaction_timestamp", *TIME_WORDS)


def subquery(text: str, where: str) -> str:
    """Return a query without trailing semicolons and comments, so that it can be put in parentheses.

    `where`: option or file of the query. Raises InputError unless it is one read-only statement.

    >>> subquery("SELECT 1; -- done", "data.train")
    'SELECT 1'
    """
    # The parser takes a statement that writes inside WITH as a SELECT, but DuckDB runs none in parentheses.
    try:
        text.encode()
        statements = duckdb.extract_statements(text)
    except (duckdb.Error, UnicodeError) as error:
        raise InputError(where, f"cannot be read: {first_line(error)}", "fix the query") from None
    if not statements:
        raise InputError(where, "holds no query", "write one SELECT")
    if len(statements) > 1:
        raise InputError(where, f"holds {len(statements)} statements", "write one SELECT")
    kind = statements[0].type.name
    if kind == "MULTI":
        raise InputError(where, "a PIVOT must list its columns: PIVOT … ON column IN ('a', 'b', …) …")
    if kind != "SELECT":
        raise InputError(where, f"is a statement of kind {kind}", "write one SELECT, which only reads")
    return _without_end(statements[0].query)


def _without_end(statement: str) -> str:
    data = statement.encode()  # `duckdb.tokenize` returns positions in bytes, not in characters
    end = len(data)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        # A semicolon inside a string or a comment is no token of its own.
        if kind.name != "comment" and data[offset:end].strip() != b";":
            break
        end = offset
    return data[:end].decode()


def check_query(text: str, key: str = "data.query") -> str:
    """Return the SQL of a query without trailing semicolons and comments.

    A bundle may be untrusted, and its query runs on the user's machine: raises InputError unless it can be parsed as
    one SELECT that reads only the table `input`.

    >>> check_query("SELECT items, label FROM input;")
    'SELECT items, label FROM input'
    >>> check_query("SELECT * FROM input JOIN 'rates.csv' USING (day)")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: data.query: reads 'rates.csv'; it can read the table input only
    """
    if re.fullmatch(r"\S+\.sql", text):
        raise InputError(key, f"{text} is a file", "give the SELECT itself")
    query = subquery(text, key)
    if not _parsed(query).get("statements"):
        raise InputError(key, "is nested too deeply to be checked", "write a shorter query")
    known = cte_names(query) | {INPUT}
    for node in _nodes(_parsed(query)):
        if node.get("type") == "BASE_TABLE":
            name = ".".join(part for key in TABLE_NAME if (part := node.get(key)))
            # A WITH of one part may have the name of a file that another part reads.
            if name.casefold() not in known or LIKE_A_FILE.search(name):
                raise InputError(key, f"reads '{name}'", f"it can read the table {INPUT} only")
        elif node.get("type") == "TABLE_FUNCTION":
            function = node["function"]["function_name"].casefold()
            if function not in NOT_READERS:
                raise InputError(key, f"calls {function}()", f"it can read the table {INPUT} only")
    return query


def load_query(text: str, key: str = "data.query") -> str:
    """Check a query of the config with `check_query` and `check_repeatable`, and return its SQL."""
    query = check_query(text, key)
    check_repeatable(query, key)
    return query


def check_repeatable(text: str, where: str) -> None:
    """Raise InputError if the result of a query depends on random values, a sample or the current time."""
    for node in _nodes(_parsed(text)):
        function = str(node.get("function_name", "")).casefold()
        words = [name.casefold() for name in node.get("column_names", [])]
        if node.get("sample"):
            cause = "a sample"
        elif function in (*CHANCE, *CLOCK):
            cause = f"{function}()"
        elif len(words) == 1 and words[0] in TIME_WORDS:
            cause = words[0]
        else:
            continue
        raise InputError(where, f"gives other rows each time, by {cause}", "store such values in the files")


@lru_cache(maxsize=64)
def loses_order(text: str) -> bool:
    """Return True if several DuckDB threads may return the rows of a query in a different order in each run."""
    return any(
        node.get("type") in REORDERING
        or node.get("class") == "WINDOW"
        or node.get("group_expressions")
        or node.get("aggregate_handling") == "FORCE_AGGREGATES"
        or (node.get("type") == "SET_OPERATION_NODE" and not (node["setop_type"] == "UNION" and node["setop_all"]))
        for node in _nodes(_parsed(text))
    )


@lru_cache(maxsize=64)
def in_fixed_order(query: str) -> str:
    """Return a query whose rows always have the same order, by all columns if it has no ORDER BY and `loses_order`."""
    statements = _parsed(query).get("statements") or [{"node": {}}]
    kinds = [modifier["type"] for modifier in statements[0]["node"].get("modifiers", [])]
    if "ORDER_MODIFIER" in kinds or not loses_order(query):
        return query
    return f"SELECT * FROM ({query}\n) ORDER BY ALL"


def passes_through(text: str, columns: Iterable[str]) -> bool:
    """Return True if a query returns all columns in `columns` with unchanged values. The query may rename a column.

    >>> passes_through("SELECT a AS b, lower(c) AS c FROM input", ["b"])
    True
    >>> passes_through("SELECT a AS b, lower(c) AS c FROM input", ["c"])
    False
    """
    statements = _parsed(text).get("statements")
    node = statements[0]["node"] if statements else {}
    if node.get("from_table", {}).get("type") != "BASE_TABLE" or cte_names(text) or loses_order(text):
        return False
    kept: set[str] = set()
    changed: set[str] = set()
    everything = False
    for item in node["select_list"]:
        if item["type"] == "STAR" and not item["columns"]:
            everything = True
            changed |= {entry["key"].casefold() for entry in item["replace_list"]}
        else:
            name = (item["alias"] or item.get("column_names", [""])[-1]).casefold()
            (kept if item["type"] == "COLUMN_REF" else changed).add(name)
    names = {column.casefold() for column in columns}
    return not names & changed and (everything or names <= kept)


@lru_cache(maxsize=64)
def cte_names(text: str) -> frozenset[str]:
    """Return the names that a query defines by WITH, in lower case, because DuckDB ignores case."""
    maps = [node["cte_map"]["map"] for node in _nodes(_parsed(text)) if node.get("cte_map")]
    return frozenset(entry["key"].casefold() for entries in maps for entry in entries)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Return DuckDB's syntax tree of a query, {} if it cannot be parsed."""
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        return json.loads(row[0]) if row else {}
    except (duckdb.Error, TypeError, UnicodeError, RecursionError):
        return {}


def _nodes(tree: Any) -> Iterator[JsonObject]:
    """Yield each dict in a syntax tree, outer ones first."""
    waiting = [tree]  # a stack replaces recursion, because a UNION of 500 files gives a deep tree
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += reversed(node.values())
        elif isinstance(node, list):
            waiting += reversed(node)


def connect() -> duckdb.DuckDBPyConnection:
    """Open an in-memory database, which can read any file until `restrict` is called."""
    # By default, DuckDB would read a Python variable if a query names a table that does not exist.
    return duckdb.connect(config={"python_enable_replacements": "false"})


def restrict(connection: duckdb.DuckDBPyConnection, folders: Iterable[str]) -> None:
    """Restrict a connection to the files in `folders`, and lock its settings."""
    connection.execute(f"SET allowed_directories = [{', '.join(map(quote_literal, folders))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
