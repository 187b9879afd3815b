"""Interface of file formats. A file format is a class. The class is selected by the ending of the file name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from glob import escape, has_magic
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError

TableSql = Callable[[bool], str]  # argument: True to add the column FILE; result: SQL of the table


class Files(NamedTuple):
    """The files of one source, and the settings for reading the files.

    `paths`: paths of the files, empty if `source.path` is a URL. `ending`: ending that all files have in common (see
    `suffix_of`). `connection`: DuckDB connection, which may still read any file. `keep_malformed`: True to store
    malformed lines in DuckDB's tables of rejected lines, False to stop the query at a malformed line.
    `file_per_sequence`: True if each file is one sequence, and the name of its folder is the label. `temporary`: path
    of a temporary folder. A format that needs the folder must create it, and the reader deletes the folder when the
    reader is closed.
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
        """SQL list with the paths of the files, or with the URL."""
        return sql_list(self.paths) if self.paths else f"[{quote_literal(self.source.path)}]"

    @property
    def partitions(self) -> dict[str, str]:
        """Options of DuckDB with which folders such as day=1 are columns only where a glob names the files."""
        return {} if has_magic(self.source.path) else {"hive_partitioning": "false"}


class Format(ABC):
    """Base class of file formats.

    To add a format, write a module in the package `formats`, and add its class to `format_lookup.FORMATS`.

    `endings`: endings of file names in lower case. An ending includes the dot and leaves out compression endings such
    as `.gz`. `by_lines`: True if each row is a line of text. If the lines of a file end in different ways, DuckDB reads
    a copy in which all lines end in the same way. `remote`: True if DuckDB can read files of this format from a URL.
    `only_in_class_folders`: True if the format is used only in a folder with one file or one sub-folder for each label.
    In a folder with one file or sub-folder for each label, the format is preferred to other formats with the same
    ending. `in_folder_per_class`: True if a file may be one sequence in a folder for its label.

    A format may return any columns. Cells with text are cast later, one column at a time. A bad cell then rejects only
    one row and not the whole file. `ArrowFormat` is the base class of formats that DuckDB cannot read.

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
        """Return SQL that can follow FROM and that returns the rows in the order of the files.

        Raises InputError with the path of a file that cannot be read.
        """

    def with_row_numbers(self, table: str) -> str | None:
        """Add the columns `file_row_number` and `file_index` of DuckDB to the SQL of a table.

        Returns None if the format has no row numbers.
        """
        return None


def describe_columns(connection: duckdb.DuckDBPyConnection, relation: str) -> dict[str, str]:
    """Return dict column name → DuckDB type for a relation. The column FILE is left out."""
    rows = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return {name: kind for name, kind, *_ in rows if name != FILE}


def scan(function: str, files: str, options: Mapping[str, str], named_files: bool) -> str:
    """Return SQL that calls a DuckDB table function.

    `files`: SQL list of the paths of the files. `options`: dict name of an argument → value as SQL. `named_files`: True
    to add the column FILE.

    >>> scan("read_csv", "['t.csv']", {"header": "true"}, named_files=False)
    "read_csv(['t.csv'], header = true)"
    """
    if named_files:
        options = {"filename": quote_literal(FILE), **options}
    return f"{function}({files}{''.join(f', {key} = {value}' for key, value in options.items())})"


def sql_list(paths: Sequence[Path]) -> str:
    """Return paths as an SQL list for DuckDB table functions."""
    return f"[{', '.join(quote_literal(escape(str(path))) for path in paths)}]"


# Base class of formats that DuckDB cannot read. The Python code of such a format converts each file to Arrow record
# batches.

ROWS_TABLE, ROWS_FILE = "arrow_rows", "rows.arrow"
MAX_BATCH_ROWS = 8192  # rows per record batch; the number is small so that the first rows are returned quickly


class ArrowFormat(Format):
    """Base class of formats that are read by Python code.

    Each file is read once and written to a temporary Arrow file. DuckDB can read the temporary Arrow file several
    times. A format that yields record batches therefore never holds a whole file in memory.

    >>> class Lines(ArrowFormat):
    ...     endings = (".lines",)
    ...
    ...     def read(self, path):
    ...         return pa.table({"text": path.read_text().splitlines()})
    """

    in_folder_per_class: ClassVar[bool] = True

    @abstractmethod
    def read(self, path: Path) -> pa.Table | Iterable[pa.RecordBatch]:
        """Return the rows of a file as a table, as a record batch reader or as a generator of record batches.

        Raise ValueError if the file cannot be read. The user sees the path of the file and the message of the
        ValueError.
        """

    def table(self, files: Files) -> TableSql:
        import pyarrow.dataset as arrow_dataset  # this import is slow, so it is done only when needed

        files.temporary.mkdir(parents=True, exist_ok=True)
        rows_file = files.temporary / ROWS_FILE
        self._write(files.paths, rows_file)
        files.connection.register(ROWS_TABLE, arrow_dataset.dataset(str(rows_file), format="ipc"))
        unnamed = f"(SELECT * EXCLUDE ({quote_identifier(FILE)}) FROM {ROWS_TABLE})"
        return lambda named_files: ROWS_TABLE if named_files else unnamed

    def _write(self, paths: Iterable[Path], target: Path) -> None:
        """Write the rows of all files to one Arrow file, with the path of each row's file in the column FILE."""
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
        """Yield the record batches of one file. Raises InputError if the file is damaged.

        Buffers are validated here, because DuckDB does not validate them.
        """
        try:
            content = self.read(path)
            for record_batch in _batches_of(content) if isinstance(content, pa.Table) else content:
                record_batch.validate(full=True)
                yield _without_dictionaries(record_batch)
        except InputError:
            raise
        except Exception as error:  # readers raise exceptions of many types for a damaged file
            expected = isinstance(error, (ValueError, OSError))
            lines = (str(error) if expected else repr(error)).splitlines() or [repr(error)]
            raise InputError(path, f"cannot be read: {lines[0].rstrip(' .')}", "fix or replace the file") from error


def _batches_of(table: pa.Table) -> list[pa.RecordBatch]:
    """Return the record batches of a table.

    For a table without rows, return one empty record batch, because it holds the schema.
    """
    return table.to_batches(MAX_BATCH_ROWS) or [pa.RecordBatch.from_pylist([], table.schema)]


def _without_dictionaries(record_batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert dictionary columns to plain columns. An Arrow file can store only one dictionary for each column."""
    if not any(pa.types.is_dictionary(field.type) for field in record_batch.schema):
        return record_batch
    columns = [
        pc.dictionary_decode(column) if pa.types.is_dictionary(column.type) else column
        for column in record_batch.columns
    ]
    return pa.record_batch(columns, record_batch.schema.names)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
