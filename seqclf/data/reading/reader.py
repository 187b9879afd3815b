"""Reader of a source: opens the files once, then describes, counts, samples and reads them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from glob import escape
from pathlib import Path
from shutil import rmtree
from types import TracebackType

import duckdb
import pyarrow as pa

from seqclf.data.reading import line_endings, sandbox
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.canonical_columns import canonical_columns
from seqclf.data.reading.events import read_events
from seqclf.data.reading.format import describe_columns
from seqclf.data.reading.object_store import url_of
from seqclf.data.reading.queries import loses_order, readable_paths
from seqclf.data.reading.relations import Relation, apply_query, build_relation
from seqclf.data.reading.source_errors import explain_errors
from seqclf.data.reading.sources import (
    Source,
    is_remote,
    listed,
    query_text,
    readable_files,
    resolved,
)
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.data.schema.rows import Refusal, SourceRows, number_rows, rebatch
from seqclf.data.schema.schema import Schema
from seqclf.system import progress, signals

BATCH_ROWS = 8192


class SourceReader:
    """An open source: a DuckDB connection in which its files are one table.

    A context manager. The files are listed, and the dialect of text files is detected, when it opens. Two threads must
    not use a reader at the same time, because they would share the connection.

    Malformed lines of text files, and files of a class folder that cannot be used, raise an InputError. With
    `keep_malformed` they are left out and `read` adds them to `malformed`.

    `null_columns`: columns that `source.query` may find null, where the files lack them.

    >>> with SourceReader(Source("builtin:japanese_vowels_test.parquet", "data.test")) as reader:
    ...     reader.column_types["speaker"], reader.count_rows()
    ('TINYINT', 370)
    """

    def __init__(self, source: Source, *, keep_malformed: bool = False, null_columns: Sequence[str] = ()):
        self.source = source
        self.null_columns = null_columns
        self.keep_malformed = keep_malformed
        self.malformed: list[Refusal] = []

    def __enter__(self) -> SourceReader:
        with explain_errors(self.source), ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and delete temporary files. May be called more than once."""
        self._stack.close()

    def _open(self, stack: ExitStack) -> None:
        self.source = source = listed(self.source)
        without_files = query_text(source) is not None or is_remote(source) or source.table is not None
        self.paths = [] if without_files else readable_files(source)
        copies = line_endings.new_folder(Path(source.spill).parent if source.spill else Path(tempfile.gettempdir()))
        # DuckDB may read everything in its spill folder, so that must not be a folder with files of others.
        spill = Path(source.spill or f"{copies}-spill")
        for folder in (copies, spill) if source.spill is None else (copies,):
            stack.callback(partial(rmtree, folder, ignore_errors=True))
        self._connection = stack.enter_context(sandbox.connect())
        # DuckDB counts the progress of a query only for its bar, which would mix with ours. In a notebook without
        # ipywidgets it has no bar, and refuses to set one.
        with suppress(duckdb.Error):
            self._connection.execute(f"SET enable_progress_bar = {str(progress.is_shown()).lower()}")
            self._connection.execute("SET enable_progress_bar_print = false")
        self._connection.execute(f"SET temp_directory = {quote_literal(str(spill))}")
        if source.memory_limit is not None:
            self._connection.execute(f"SET memory_limit = {quote_literal(source.memory_limit)}")
        query = source.query if source.query is not None else query_text(source)
        if query is not None and loses_order(query):
            # Threads would put the values of a list, and rows of equal keys, into another order each time.
            self._connection.execute("SET threads = 1")
        self._relation: Relation = build_relation(source, self.paths, self._connection, copies, self.keep_malformed)
        _restrict(self._connection, source, self.paths, copies)
        if source.query is not None:
            self._relation = apply_query(self._relation, source, self._connection, self.null_columns)

    @cached_property
    def column_types(self) -> dict[str, str]:
        """Column names and DuckDB types."""
        with explain_errors(self.source):
            return describe_columns(self._connection, self._relation.sql)

    def count_rows(self) -> int:
        with explain_errors(self.source):
            # Not `fetchone`: DuckDB refuses further queries while a result is not fetched to its end.
            ((count,),) = self._connection.execute(f"SELECT count(*) FROM {self._relation.sql}").fetchall()
        return count

    def row_unit(self, schema: Schema) -> str:
        """Return the name of the rows of the source, for progress."""
        return "events" if schema.group_by else "rows"

    def sample(self, rows: int) -> pa.Table:
        """The first `rows` rows, all columns. Raises InputError if there are none."""
        with explain_errors(self.source):
            table = self._connection.sql(f"SELECT * FROM {self._relation.sql} LIMIT {rows}").to_arrow_table()
            if not table.num_rows:
                malformed = rejects.refusals(self._connection, self.source.encoding)
                raise rejects.no_rows(self.source, f": {malformed[0]}" if malformed else "")
            # `read` finds the malformed lines of these rows again, and must not report them twice.
            rejects.forget(self._connection)
        return table

    @property
    def several_files(self) -> bool:
        """True if rows have files of their own. A row that a query returns may come from many of them."""
        return len(self.paths) > 1 and self.source.query is None

    def select(self, expressions: Sequence[str], most_rows: int | None = None, *, with_files: bool = False) -> pa.Table:
        """Evaluate SQL expressions over the columns, for every row or for a fixed random sample of `most_rows`.

        `with_files`: add the column FILE, the path of each row's file (see `several_files`).
        """
        relation = self._relation.named_sql if with_files else self._relation.sql
        files = [quote_identifier(FILE)] if with_files else []
        query = f"SELECT {', '.join([*expressions, *files])} FROM {relation}"
        if most_rows is not None:
            query = f"SELECT * FROM ({query}) USING SAMPLE reservoir({most_rows} ROWS) REPEATABLE (0)"
        with explain_errors(self.source):
            return self._connection.sql(query).to_arrow_table()

    def read(
        self, schema: Schema, keys: Mapping[str, str] | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[SourceRows]:
        """Stream the canonical columns of every sequence, in file order, or for event tables sorted by group.

        - `label` (string) and `id`, where the schema has them
        - one column per field, of its encoder's `canonical_type`
        - `raw <field>`: the beginning of each text cell, for error messages
        - a column for each SQL expression of `keys`, by name

        Files with a row per sequence come in chunks of `rows`. Raises InputError for data that cannot be read.
        """
        self._refuse_files()
        with explain_errors(self.source):
            if schema.group_by:
                batches = read_events(
                    self._connection,
                    self._relation,
                    self.column_types,
                    self.paths,
                    str(self.source),
                    schema,
                    keys or {},
                )
            else:
                batches = self._read_rows(schema, keys or {}, rows)
            for batch in batches:
                signals.raise_lost()
                yield batch
            if self.keep_malformed:
                self.malformed += rejects.refusals(self._connection, self.source.encoding)

    def _read_rows(self, schema: Schema, keys: Mapping[str, str], rows: int) -> Iterator[SourceRows]:
        expressions = canonical_columns(schema, self.column_types, str(self.source), keys)
        relation = self._relation.sql
        # Rows are numbered within each file, so DuckDB has to name the file of each where there are several. A row that
        # a query returns is numbered in the result.
        if self.several_files:
            expressions.append(quote_identifier(FILE))
            relation = self._relation.named_sql
        stream = self._connection.sql(f"SELECT {', '.join(expressions)} FROM {relation}").to_arrow_reader(rows)
        yield from number_rows(rebatch(stream, rows), str(self.source), self.several_files)

    def _refuse_files(self) -> None:
        """Add the unusable files of a class folder to `malformed`, or raise InputError for the first."""
        listing = self.source.listing
        refusals = (
            []
            if listing is None
            else [Refusal(url_of(str(path)), None, "the file", reason) for path, reason in listing.refused]
        )
        if refusals and not self.keep_malformed:
            raise refusals[0].error()
        self.malformed += refusals


def _restrict(connection: duckdb.DuckDBPyConnection, source: Source, paths: list[Path], copies: Path) -> None:
    """Forbid the connection to read anything but the files of the source, and to change its settings."""
    query = query_text(source)
    if query is not None:
        sandbox.restrict(connection, paths=readable_paths(query, str(source)))
    elif is_remote(source):
        sandbox.restrict(connection, paths=[source.path])
    else:
        # By folder: naming 50,000 texts one by one takes DuckDB seconds. It checks the escaped name of a file first,
        # and then the file, so that both spellings of a folder must be allowed.
        folders = {str(path.parent) for path in resolved(paths)}
        patterns = {escape(folder) for folder in folders}
        sandbox.restrict(connection, folders=[*sorted(folders | patterns), str(copies)])


def count_rows(source: Source, null_columns: Sequence[str] = ()) -> int:
    """Count the rows of a source. `null_columns`: see `SourceReader`.

    >>> count_rows(Source("builtin:japanese_vowels_test.parquet", "data.test"))
    370
    """
    with SourceReader(source, null_columns=null_columns) as reader:
        return reader.count_rows()
