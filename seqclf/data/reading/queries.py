"""SQL of the user: checks that it is one statement that only reads, and finds the files that it names."""

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
FILE_URL = re.compile(r"file:(//(localhost)?)?(?=/)")  # DuckDB's rule: lower case, and %20 is no space
NOT_READERS = ("unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row")
REORDERING = ("JOIN", "PIVOT", "RECURSIVE_CTE_NODE", "DISTINCT_MODIFIER")
# Functions of chance and of the time of day, and words that mean one.
TIME_WORDS = ("current_date", "current_time", "current_timestamp", "localtime", "localtimestamp")
CHANCE = ("random", "setseed", "uuid", "uuidv4", "uuidv7", "gen_random_uuid", "nextval")
CLOCK = ("today", "now", "get_current_time", "get_current_timestamp", "transaction_timestamp", *TIME_WORDS)
STORES = ("s3", "s3a", "s3n", "gcs", "gs", "r2", "hf", "az", "azure", "abfss")  # DuckDB needs files to log in to them
# Table functions whose first argument is what they read.
READERS = (
    *("glob", "parquet_scan", "read_blob", "read_csv", "read_csv_auto", "read_json", "read_json_auto"),
    *("read_json_objects", "read_json_objects_auto", "read_ndjson", "read_ndjson_auto", "read_ndjson_objects"),
    *("read_parquet", "read_text", "sniff_csv"),
)


class NamedFiles(NamedTuple):
    """A path, glob or URL in a query. `function`: the table function that reads it, "" for the name of a table."""

    path: str
    function: str


def subquery(text: str, where: str) -> str:
    """The query as it can stand in parentheses. Raises InputError unless it is one statement that only reads.

    `where`: the key or file of the query, for error messages.

    >>> subquery("SELECT 1; -- done", "data.train")
    'SELECT 1'
    """
    # DuckDB's parser decides. It takes a statement that writes inside WITH for a SELECT, but refuses to run one in
    # parentheses.
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
    data = statement.encode()  # `tokenize` gives positions in bytes
    end = len(data)
    for offset, kind in reversed(duckdb.tokenize(statement)):
        # `;` in a text or a comment is part of that token, so only a separate one ends the statement.
        if kind.name != "comment" and data[offset:end].strip() != b";":
            break
        end = offset
    return data[:end].decode()


def named_paths(text: str) -> tuple[str, ...]:
    """Paths, globs and URLs in a query: names of tables, which may be files, and text arguments of table functions.

    Empty for a query that cannot be parsed.

    >>> named_paths("SELECT * FROM 'a.csv' JOIN read_parquet(['b.parquet', 'c.parquet']) USING (id)")
    ('a.csv', 'b.parquet', 'c.parquet')
    """
    return tuple(dict.fromkeys(entry.path for entry in named_files(text)))


@lru_cache(maxsize=64)
def named_files(text: str) -> tuple[NamedFiles, ...]:
    """The `named_paths` with the function that reads each."""
    return tuple(dict.fromkeys(entry for node in _nodes(_parsed(text)) for entry in _files_of_node(node)))


def readable_paths(text: str, where: str) -> list[str]:
    """Paths that a query may read: the `named_paths`, but a URL only where a reader or FROM names it.

    Any text may look like a URL. Raises InputError if the query reads from a store and something that it does not name,
    because a connection to a store can read every file.
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
    """Table functions in a query that may read something, however their arguments are computed."""
    calls = [node["function"]["function_name"].casefold() for node in _nodes(_parsed(text)) if _is_call(node)]
    return [name for name in calls if name not in NOT_READERS]


def check_repeatable(text: str, where: str) -> None:
    """Raise InputError if a query gives other rows each time: by chance, a sample, or the time of day."""
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
    """True if DuckDB may give the rows of a query in another order each time, as threads finish."""
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
    """The query, with its rows sorted by their values if it has no ORDER BY of its own and `loses_order`."""
    statements = _parsed(query).get("statements") or [{"node": {}}]
    kinds = [modifier["type"] for modifier in statements[0]["node"].get("modifiers", [])]
    if "ORDER_MODIFIER" in kinds or not loses_order(query):
        return query
    return f"SELECT * FROM ({query}\n) ORDER BY ALL"


def passes_through(text: str, columns: Iterable[str]) -> bool:
    """True if a query selects each of `columns` as it is in the table that it reads, perhaps under another name.

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
    """True if the syntax tree of a query is known, so that the names in it are."""
    return bool(_parsed(text).get("statements"))


@lru_cache(maxsize=64)
def cte_names(text: str) -> frozenset[str]:
    """Names that WITH gives to sub-queries anywhere in a query, in lower case because DuckDB ignores the case."""
    maps = [node["cte_map"]["map"] for node in _nodes(_parsed(text)) if node.get("cte_map")]
    return frozenset(entry["key"].casefold() for entries in maps for entry in entries)


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Syntax tree of DuckDB's parser. Empty for a query that cannot be parsed."""
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
        return json.loads(row[0]) if row else {}
    except (duckdb.Error, TypeError, UnicodeError, RecursionError):
        return {}


def _nodes(tree: Any) -> Iterator[JsonObject]:
    """Every dict of a tree, the outer one first."""
    waiting = [tree]  # no recursion: a UNION of 500 files is a deep tree
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
    """True if the first argument of a reader is a text, or a list of nothing but texts."""
    for argument in arguments[:1]:
        expression = argument["expression"]
        items = expression["arguments"] if expression.get("function_name") == "list_value" else [argument]
        return all(item["expression"].get("literal", {}).get("kind") == "STRING" for item in items)
    return False


def _is_call(node: JsonObject) -> bool:
    """True for the call of a table function."""
    return node.get("type") == "TABLE_FUNCTION"


def _texts(arguments: list[JsonObject]) -> Iterator[str]:
    """Arguments that are a text, or a list of texts. A text that SQL puts together from parts is left out."""
    for argument in arguments:
        expression = argument["expression"]
        literals = expression.get("literal", {})
        if literals.get("kind") == "STRING":
            yield literals["text"]
        elif expression.get("function_name") == "list_value":
            yield from _texts(expression["arguments"])


def scheme_of(path: str) -> str | None:
    """Scheme of a URL in lower case. None for a path and for `file://`.

    >>> scheme_of("S3://bucket/t.parquet"), scheme_of("/data/t.parquet")
    ('s3', None)
    """
    match = SCHEME.match(path)
    return match[1].lower() if match and match[1].lower() != "file" else None


def local_path(path: str) -> Path:
    """Path of a file or folder as DuckDB resolves it: without `file://`, and with the home folder for `~`."""
    return Path(FILE_URL.sub("", path)).expanduser() if path.startswith(("file:/", "~/")) else Path(path)
