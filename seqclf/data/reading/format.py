"""Interface of a file format: one class, found by the endings of its files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from glob import escape
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

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
    """A file format. A new one is a module in `formats`, or an entry point `seqclf.formats` of a package.

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


# Base class of formats that DuckDB does not read: Python code turns each file into Arrow record batches.

ROWS_TABLE, ROWS_FILE = "arrow_rows", "rows.arrow"
MAX_BATCH_ROWS = 8192  # of a table, so that a few rows are read without the rest


class ArrowFormat(Format):
    """Base class of formats that are read by Python code.

    Each file is read once and written to a temporary Arrow file, which DuckDB scans as often as it needs. So a format
    that yields record batches never holds a whole file in memory.

    >>> class Lines(ArrowFormat):
    ...     endings = (".lines",)
    ...
    ...     def read(self, path):
    ...         return pa.table({"text": path.read_text().splitlines()})
    """

    in_folder_per_class: ClassVar[bool] = True

    @abstractmethod
    def read(self, path: Path) -> pa.Table | Iterable[pa.RecordBatch]:
        """Return the rows of a file: a table, a reader of record batches, or a generator of them.

        Raise ValueError for a file that cannot be read; the user sees its message after the path of the file.
        """

    def table(self, files: Files) -> TableSql:
        import pyarrow.dataset as arrow_dataset  # slow to import, and few sources need it

        files.temporary.mkdir(parents=True, exist_ok=True)
        rows_file = files.temporary / ROWS_FILE
        self._write(files.paths, rows_file)
        files.connection.register(ROWS_TABLE, arrow_dataset.dataset(str(rows_file), format="ipc"))
        unnamed = f"(SELECT * EXCLUDE ({quote_identifier(FILE)}) FROM {ROWS_TABLE})"
        return lambda named_files: ROWS_TABLE if named_files else unnamed

    def _write(self, paths: Iterable[Path], target: Path) -> None:
        """Write the rows of all files, with the column FILE, to one Arrow file."""
        schema: pa.Schema | None = None
        first_path: Path | None = None
        with ExitStack() as stack:
            for path in paths:
                for record_batch in self._record_batches(path):
                    if schema is None:
                        schema, first_path = record_batch.schema, path
                        check_names(schema.names, str(path))
                        file_schema = schema.append(pa.field(FILE, pa.string()))
                        writer = stack.enter_context(pa.ipc.new_file(str(target), file_schema))
                    if not record_batch.schema.equals(schema):
                        raise InputError(
                            path,
                            f"has the columns {_described(record_batch.schema)}, but {first_path} has "
                            f"{_described(schema)}",
                            "give files of the same columns",
                        )
                    columns = [*record_batch.columns, pa.repeat(str(path), record_batch.num_rows)]
                    writer.write_batch(pa.record_batch(columns, schema=file_schema))
        if schema is None:
            raise InputError(", ".join(map(str, paths)), "has no rows", "give a file with a row per sequence")

    def _record_batches(self, path: Path) -> Iterator[pa.RecordBatch]:
        """Read one file. Raises InputError if it is damaged, also where DuckDB would trust its buffers and crash."""
        try:
            content = self.read(path)
            for record_batch in _batches_of(content) if isinstance(content, pa.Table) else content:
                record_batch.validate(full=True)
                yield _without_dictionaries(record_batch)
        except InputError:
            raise
        except Exception as error:  # code of another package, which may raise anything for a damaged file
            expected = isinstance(error, (ValueError, OSError))
            lines = (str(error) if expected else repr(error)).splitlines() or [repr(error)]
            raise InputError(path, f"cannot be read: {lines[0].rstrip(' .')}", "fix or replace the file") from error


def _batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """The rows of a table. One empty record batch for a table without rows, which keeps its columns."""
    return table.to_batches(MAX_BATCH_ROWS) or [pa.RecordBatch.from_pylist([], table.schema)]


def _without_dictionaries(record_batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionary columns: an Arrow file holds one dictionary of each, and record batches may differ in it."""
    if not any(pa.types.is_dictionary(field.type) for field in record_batch.schema):
        return record_batch
    columns = [
        pc.dictionary_decode(column) if pa.types.is_dictionary(column.type) else column
        for column in record_batch.columns
    ]
    return pa.record_batch(columns, record_batch.schema.names)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
