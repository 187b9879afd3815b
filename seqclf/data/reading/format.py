"""Interface of file formats, classes of which the ending of a file name selects one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from glob import escape, has_magic
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb

from seqclf.data.reading.csv_dialect import uniform
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import FILE, quote_literal

TableSql = Callable[[bool], str]  # argument: True to add the column FILE; result: SQL of the table


class Files(NamedTuple):
    """The files of one source, and the settings for reading them.

    `connection`: DuckDB connection, which may still read any file. `keep_malformed`: True to store malformed lines in
    DuckDB's tables of rejected lines, False to stop at one. `temporary`: path of a folder for copies, which a format
    creates and the reader deletes.
    """

    source: Source
    paths: Sequence[Path]
    connection: duckdb.DuckDBPyConnection
    keep_malformed: bool
    temporary: Path

    @property
    def sql_list(self) -> str:
        return sql_list(self.paths)

    @property
    def partitions(self) -> dict[str, str]:
        """Options of DuckDB with which folders such as day=1 are columns only where a glob names the files."""
        return {} if has_magic(self.source.path) else {"hive_partitioning": "false"}


class Format(ABC):
    """Base class of file formats. A new one is a class in `relations.FORMATS`.

    `endings`: endings of file names in lower case with the dot, without those of compression. Columns may have any
    type: texts are cast later, one column at a time, so that a bad cell rejects a row and not the file.

    >>> class Extended(Format):
    ...     endings = (".psv",)
    ...
    ...     def table(self, files):
    ...         return lambda named_files: scan("read_csv", files.sql_list, {"delim": "'|'"}, named_files)
    """

    endings: ClassVar[tuple[str, ...]]

    def readable(self, files: Files) -> list[Path]:
        """Return the paths of the files, with the path of a copy for each file that cannot be read as it is."""
        return list(files.paths)

    @abstractmethod
    def table(self, files: Files) -> TableSql:
        """Return SQL for FROM that gives the rows in the order of the files. Raises InputError if it cannot."""

    def with_row_numbers(self, table: str) -> str | None:
        """Add DuckDB's `file_row_number` and `file_index` to the SQL of a table, or return None without them."""
        return None


class TextFormat(Format):
    """Base class of formats in which each row is a line of text, and each cell a text.

    If lines end in different ways, DuckDB reads a copy in which they do not.
    """

    def readable(self, files: Files) -> list[Path]:
        listing = files.source.listing
        if listing is not None and listing.per_class:
            return list(files.paths)
        return uniform(files.paths, files.temporary, files.source.encoding)


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return dict column name → DuckDB type for a relation. The column FILE is left out."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def scan(function: str, files: str, options: Mapping[str, str], named_files: bool) -> str:
    """Return SQL that calls a DuckDB table function. `files`: SQL list of paths. `named_files`: True to add FILE.

    >>> scan("read_csv", "['t.csv']", {"header": "true"}, named_files=False)
    "read_csv(['t.csv'], header = true)"
    """
    if named_files:
        options = {"filename": quote_literal(FILE), **options}
    return f"{function}({files}{''.join(f', {key} = {value}' for key, value in options.items())})"


def sql_list(paths: Sequence[Path]) -> str:
    """Return paths as an SQL list for DuckDB table functions."""
    return f"[{', '.join(quote_literal(escape(str(path))) for path in paths)}]"
