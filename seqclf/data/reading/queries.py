"""Check that a query of the user is one read-only SQL statement, and find the files that the query reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from seqclf.errors import InputError, first_line
from seqclf.system.json_result import JsonObject

QUERY = re.compile(r"\s*(select|with|from|pivot|unpivot)\s", re.IGNORECASE)
SCHEME = re.compile(r"([a-z][a-z0-9+]*)://", re.IGNORECASE)
FILE_URL = re.compile(r"file:(//(localhost)?)?(?=/)")  # like DuckDB, accept lower case only and do not decode %20
NOT_READERS = ("unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row")
REORDERING = ("JOIN", "PIVOT", "RECURSIVE_CTE_NODE", "DISTINCT_MODIFIER")
# Functions that return a random value or the current time, and SQL keywords for the current time.
TIME_WORDS = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
CHANCE = ("random", "setseed", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval")
CLOCK = ("today", "now", "get_current_time", "get_current_timestamp", "transaction_timestamp", *TIME_WORDS)
STORES = ("s3", "s3a", "s3n", "gcs", "gs", "r2", "hf", "az", "azure", "abfss")  # DuckDB reads credentials from files
# Table functions whose first argument is a path or a list of paths.
READERS = (
    *("glob", "parquet_scan", "read_blob", "read_csv", "read_csv_auto", "read_json", "read_json_auto"),
    *("read_json_objects", "read_json_objects_auto", "read_ndjson", "read_ndjson_auto", "read_ndjson_objects"),
    *("read_parquet", "read_text", "sniff_csv"),
)


class NamedFiles(NamedTuple):
    """A path, glob or URL that a query contains. `function`: table function that has the path as an argument.

    `function` is empty if the path is used as a table name.
    """

    path: str
    function: str


def subquery(text: str, where: str) -> str:
    """Return a query without trailing semicolons and comments, so that it can be put in parentheses.

    `where`: option or file that holds the query, as shown in error messages. Raises InputError unless the query is one
    read-only statement.

    >>> subquery("SELECT 1; -- done", "data.train")
    'SELECT 1'
    """
    # DuckDB's parser returns the type of the statement. The parser classifies a statement that writes inside WITH as a
    # SELECT, but DuckDB does not run such a statement in parentheses.
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
    """Remove semicolons and comments from the end of a statement."""
    data = statement.encode()  # `duckdb.tokenize` returns positions in bytes, not in characters
    end = len(data)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        # A semicolon inside a string or a comment is part of the string token or comment token. Only a semicolon that
        # is a token of its own ends the statement.
        if kind.name != "comment" and data[offset:end].strip() != b";":
            break
        end = offset
    return data[:end].decode()


def named_paths(text: str) -> tuple[str, ...]:
    """Return all paths, globs and URLs that a query contains.

    All table names are returned, because DuckDB reads a file if a table name is a path. All strings in the arguments of
    table functions are returned too. Returns () if the query cannot be parsed.

    >>> named_paths("SELECT * FROM 'a.csv' JOIN read_parquet(['b.parquet', 'c.parquet']) USING (id)")
    ('a.csv', 'b.parquet', 'c.parquet')
    """
    return tuple(dict.fromkeys(entry.path for entry in named_files(text)))


@lru_cache(maxsize=64)
def named_files(text: str) -> tuple[NamedFiles, ...]:
    """Return each path in `named_paths`, together with its table function."""
    return tuple(dict.fromkeys(entry for node in _nodes(_parsed(text)) for entry in _files_of_node(node)))


def readable_paths(text: str, where: str) -> list[str]:
    """Return the paths that a query is allowed to read.

    The result holds the paths in `named_paths`, except some URLs. A URL is included only if it is a table name or an
    argument of a function in READERS, because other strings may look like a URL. Raises InputError for a query that
    reads from an object store, unless all its paths are string literals. DuckDB could read every file for a query that
    reads from an object store.
    """
    entries = [
        entry
        for entry in named_files(text)
        if scheme_of(entry.path) is None
        or entry.function in READERS
        or (not entry.function and entry.path.casefold() not in cte_names(text))
    ]
    if any(scheme_of(entry.path) in STORES for entry in entries):
        for call in filter(_is_call, _nodes(_parsed(text))):
            name = call["function"]["function_name"].casefold()
            if name not in NOT_READERS and (name not in READERS or not _is_literal(call["function"]["arguments"])):
                problem = f"reads from a store, so {name}() must read paths that are written out"
                raise InputError(where, problem, "write the path of each file as one text in quotes")
    return [entry.path for entry in entries]


def unknown_table_functions(text: str) -> list[str]:
    """Return the table functions that a query calls. Functions that are known to read no files are left out."""
    calls = [node["function"]["function_name"].casefold() for node in _nodes(_parsed(text)) if _is_call(node)]
    return [name for name in calls if name not in NOT_READERS]


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
    """Return a query whose rows always have the same order.

    If the query has no ORDER BY and `loses_order` is True for the query, the rows are sorted by all columns.
    """
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


def can_be_parsed(text: str) -> bool:
    """Return True if DuckDB can parse a query.

    If a query cannot be parsed, the files and functions that it uses are not known.
    """
    return bool(_parsed(text).get("statements"))


@lru_cache(maxsize=64)
def cte_names(text: str) -> frozenset[str]:
    """Return the names that a query defines by WITH. The names are in lower case, because DuckDB ignores case."""
    maps = [node["cte_map"]["map"] for node in _nodes(_parsed(text)) if node.get("cte_map")]
    return frozenset(entry["key"].casefold() for entries in maps for entry in entries)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Return the syntax tree that DuckDB's parser makes of a query. Returns {} if the query cannot be parsed."""
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        return json.loads(row[0]) if row else {}
    except (duckdb.Error, TypeError, UnicodeError, RecursionError):
        return {}


def _nodes(tree: Any) -> Iterator[JsonObject]:
    """Yield each dict in a syntax tree. A dict is yielded before the dicts that it contains."""
    waiting = [tree]  # a stack replaces recursion, because a UNION of 500 files gives a deep tree
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting += reversed(node.values())
        elif isinstance(node, list):
            waiting += reversed(node)


def _files_of_node(node: JsonObject) -> Iterator[NamedFiles]:
    if node.get("type") == "BASE_TABLE":
        parts = (node.get(key) for key in ("catalog_name", "schema_name", "table_name"))
        yield NamedFiles(".".join(part for part in parts if part), "")
    elif _is_call(node):
        function = node["function"]["function_name"].casefold()
        if function not in NOT_READERS:
            yield from (NamedFiles(text, function) for text in _texts(node["function"]["arguments"]))


def _is_literal(arguments: list[JsonObject]) -> bool:
    """Return True if the first argument of a table function is a string literal or a list of string literals."""
    for argument in arguments[:1]:
        expression = argument["expression"]
        items = expression["arguments"] if expression.get("function_name") == "list_value" else [argument]
        return all(item["expression"].get("literal", {}).get("kind") == "STRING" for item in items)
    return False


def _is_call(node: JsonObject) -> bool:
    """Return True if a node of a syntax tree is the call of a table function."""
    return node.get("type") == "TABLE_FUNCTION"


def _texts(arguments: list[JsonObject]) -> Iterator[str]:
    """Yield each string literal that is an argument, or an element of a list that is an argument.

    Strings that the query computes are left out.
    """
    for argument in arguments:
        expression = argument["expression"]
        literals = expression.get("literal", {})
        if literals.get("kind") == "STRING":
            yield literals["text"]
        elif expression.get("function_name") == "list_value":
            yield from _texts(expression["arguments"])


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case. Return None for a path and for a `file://` URL.

    >>> scheme_of("S3://bucket/t.parquet"), scheme_of("/data/t.parquet")
    ('s3', None)
    """
    match = SCHEME.match(path)
    return match[1].lower() if match and match[1].lower() != "file" else None


def local_path(path: str) -> Path:
    """Convert a path as DuckDB does: remove `file://`, and replace `~` by the home folder."""
    return Path(FILE_URL.sub("", path)).expanduser() if path.startswith(("file:/", "~/")) else Path(path)
