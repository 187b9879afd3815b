"""Interface of a file format: one class, found by the endings of its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb

from seqclf.data.reading.casts import FILE, quote_literal
from seqclf.data.reading.sources import Source

TableSql = Callable[[bool], str]  # SQL of a table, with the column FILE if the argument is true


class Files(NamedTuple):
    """The files of one source, all with the same ending, and how to read them.

    `paths`: empty for a URL, which is `source.path`. `ending`: see `suffix_of`. `connection`: not restricted yet.
    `keep_malformed`: malformed lines go to the tables of rejects instead of stopping the query. `file_per_sequence`:
    each file is one sequence, in the folder of its class. `temporary`: folder for files that live as long as the
    reader; create it before use.
    """

    source: Source
    paths: Sequence[Path]
    ending: str
    connection: duckdb.DuckDBPyConnection
    keep_malformed: bool
    file_per_sequence: bool
    temporary: Path

    @property
    def sql_list(self) -> str:
        """The files, or the URL, as a list in SQL."""
        return sql_list(self.paths) if self.paths else f"[{quote_literal(self.source.path)}]"


class Format(ABC):
    """A file format. A new one is a module in `formats/builtin`, or an entry point `seqclf.formats` of a package.

    `endings`: of its files, in lower case with the dot and without that of a compression. `by_lines`: rows are lines of
    text, so that files of mixed line endings are read from uniform copies. `remote`: DuckDB reads it from URLs.
    `only_in_class_folders`: it reads class folders alone, where it comes before other formats of the same ending.
    `in_folder_per_class`: each file may be one sequence, in the folder of its class.

    The rows of a format may have any columns. Text cells are cast later, column by column, so that a bad cell costs one
    row and never the file. `ArrowFormat` is the base of formats that DuckDB does not read.

    >>> class Extended(Format):
    ...     endings = (".psv",)
    ...
    ...     def table(self, files):
    ...         return lambda named_files: scan("read_csv", files.sql_list, {"delim": "'|'"}, named_files)
    """

    endings: ClassVar[tuple[str, ...]]
    by_lines: ClassVar[bool] = False
    remote: ClassVar[bool] = False
    only_in_class_folders: ClassVar[bool] = False
    in_folder_per_class: ClassVar[bool] = False

    @abstractmethod
    def table(self, files: Files) -> TableSql:
        """Return the SQL of the rows, as it can stand after FROM, in the order of the files.

        Raises InputError, which names the file, for files that cannot be read.
        """

    def with_row_numbers(self, table: str) -> str | None:
        """Return a table of this format with DuckDB's columns `file_row_number` and `file_index`, if it has them."""
        return None


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return column names and DuckDB types of a relation, without FILE."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def scan(function: str, files: str, options: Mapping[str, str], named_files: bool) -> str:
    """Return a call of one of DuckDB's table functions. `options`: its arguments as SQL.

    >>> scan("read_csv", "['t.csv']", {"header": "true"}, named_files=False)
    "read_csv(['t.csv'], header = true)"
    """
    if named_files:
        options = {"filename": quote_literal(FILE), **options}
    return f"{function}({files}{''.join(f', {key} = {value}' for key, value in options.items())})"


def sql_list(paths: Sequence[Path]) -> str:
    """Return paths as a list in SQL, for table functions of DuckDB."""
    return f"[{', '.join(quote_literal(escape(str(path))) for path in paths)}]"
