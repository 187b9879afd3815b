"""Reader of a source, which describes, counts, samples and reads its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from glob import escape, has_magic
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from seqclf.data.ragged import is_list
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.canonical_columns import canonical_columns, select_list
from seqclf.data.reading.csv_dialect import COPIES, DELIMITERS, SCRATCH
from seqclf.data.reading.events import read_events
from seqclf.data.reading.format import describe_columns
from seqclf.data.reading.object_store import url_of
from seqclf.data.reading.queries import connect, loses_order, restrict
from seqclf.data.reading.relations import Relation, apply_query, build_relation
from seqclf.data.reading.source_errors import explain_errors
from seqclf.data.reading.sources import Source, listed, readable_files, resolved, suffix_of
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.data.schema.cell_types import Spelled, is_text
from seqclf.data.schema.rows import Refusal, SourceRows, number_rows, rebatch
from seqclf.data.schema.schema import Schema
from seqclf.system import progress, signals
from seqclf.system.atomic_files import scratch_folder

BATCH_ROWS = 8192
STORE_ROWS = {".parquet", ".arrow", ".feather"}  # endings of formats that store the number of rows


class SourceReader:
    """Reader of one source, whose files are one table in a DuckDB connection. No two threads may use it at a time.

    A `with` statement lists the files and detects the dialect of text files. `keep_malformed`: True to skip malformed
    lines and unusable files of a folder and let `read` add them to `malformed`, False to raise InputError.
    `null_columns`: columns that `source.query` reads as null if the files lack them.

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

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection and delete temporary files. May be called more than once."""
        self._stack.close()

    def _open(self, stack: ExitStack) -> None:
        self.source = source = listed(self.source)
        self.paths = [] if source.table is not None else readable_files(source)
        # A query can read every file in DuckDB's spill folder, so this folder must not hold other files.
        scratch = self._scratch_folder(stack)
        copies, spill = scratch / COPIES, scratch / "spill"
        self._connection = stack.enter_context(connect())
        # Progress is computed only with DuckDB's own bar, which is not printed. The settings fail in a notebook without
        # ipywidgets.
        with suppress(duckdb.Error):
            self._connection.execute(f"SET enable_progress_bar = {str(progress.is_shown()).lower()}")
            self._connection.execute("SET enable_progress_bar_print = false")
        self._connection.execute(f"SET temp_directory = {quote_literal(str(spill))}")
        if source.memory_limit is not None:
            self._connection.execute(f"SET memory_limit = {quote_literal(source.memory_limit)}")
        if source.query is not None and loses_order(source.query):
            # With several threads, the order of values in a list and of equal rows would change from run to run.
            self._connection.execute("SET threads = 1")
        self._relation: Relation = build_relation(source, self.paths, self._connection, copies, self.keep_malformed)
        # Folders, because to allow 50,000 files takes seconds. Paths are checked with and without escapes.
        folders = {str(path.parent) for path in resolved(self.paths)}
        restrict(self._connection, [*sorted(folders | set(map(escape, folders))), str(copies)])
        if source.query is not None:
            self._relation = apply_query(self._relation, source, self._connection, self.null_columns)

    def _scratch_folder(self, stack: ExitStack) -> Path:
        """Others cannot read the rows of the source there."""
        with suppress(OSError):
            if self.source.spill is not None:
                return stack.enter_context(scratch_folder(Path(self.source.spill), SCRATCH))
        return stack.enter_context(scratch_folder(Path(tempfile.gettempdir()), SCRATCH))

    @cached_property
    def column_types(self) -> dict[str, str]:
        """Dict column name → DuckDB type, as `Spelled` for the texts of a text file."""
        with explain_errors(self.source):
            types = describe_columns(self._connection, self._relation.sql)
        is_spelled = self._is_text_file
        return {name: Spelled(kind) if is_spelled and kind == "VARCHAR" else kind for name, kind in types.items()}

    @property
    def _is_text_file(self) -> bool:
        return bool(self.paths) and suffix_of(self.paths[0]) in DELIMITERS

    def count_rows(self) -> int:
        return self.query_row("SELECT count(*) FROM input")[0]

    def stored_rows(self) -> int | None:
        """Return the number of rows if the files store it, for progress messages, else None."""
        stores = self.source.query is None and {suffix_of(path) for path in self.paths[:1]} & STORE_ROWS
        return self.count_rows() if stores and progress.is_shown() else None

    def sample(self, rows: int) -> pa.Table:
        """Return the first `rows` rows of the source, with all columns. Raises InputError if the source has no rows."""
        with explain_errors(self.source):
            table = self._connection.sql(f"SELECT * FROM {self._relation.sql} LIMIT {rows}").to_arrow_table()
            if not table.num_rows:
                malformed = rejects.refusals(self._connection, self.source.encoding)
                raise rejects.no_rows(self.source, f": {malformed[0]}" if malformed else "")
            # The malformed lines among these rows are forgotten here, because `read` finds and reports them again.
            rejects.forget(self._connection)
        return table.cast(_spelled(table.schema)) if self._is_text_file else table

    @property
    def partitions(self) -> set[str]:
        """Names of the columns that folders such as day=1 may add: no fields, unless the config names them."""
        folders = {path.parent for path in self.paths} if has_magic(self.source.path) else ()
        return {part.partition("=")[0] for folder in folders for part in folder.parts if "=" in part}

    @property
    def several_files(self) -> bool:
        """True if the source has several files and no query, so each row comes from exactly one file."""
        return len(self.paths) > 1 and self.source.query is None

    def select(self, columns: Mapping[str, str], most_rows: int | None = None) -> pa.Table:
        """Return columns, a dict name → SQL, of every row, or of `most_rows` rows drawn with a fixed seed."""
        query = f"SELECT {select_list(columns)} FROM {self._relation.sql}"
        if most_rows is not None:
            query = f"SELECT * FROM ({query}) USING SAMPLE reservoir({most_rows} ROWS) REPEATABLE (0)"
        with explain_errors(self.source):
            return self._connection.sql(query).to_arrow_table()

    def query_row(self, sql: str) -> tuple[Any, ...]:
        """Return the first row of a query, which reads the rows of the source as the table `input`."""
        with explain_errors(self.source):
            # `fetchall` is called, because after `fetchone` DuckDB rejects other queries until all rows are fetched.
            rows = self._connection.execute(f"WITH input AS (SELECT * FROM {self._relation.sql}) {sql}").fetchall()
            rejects.forget(self._connection)  # `read` finds malformed lines again
        return rows[0]

    def read(
        self, schema: Schema, keys: Mapping[str, str] | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[SourceRows]:
        """Stream all sequences in the order of the files, those of an event table by group, with canonical columns:

        - `label` (string) and `id`, if the schema has them
        - one column per field; its type is the `canonical_type` of the field's encoder
        - `raw <field>`: the beginning of each text cell of a field, shown in error messages
        - one column for each entry of `keys`, a dict column name → SQL expression

        `rows`: rows per record batch, except for event tables. Raises InputError if the source cannot be read.
        """
        self._refuse_files()
        with explain_errors(self.source):
            if schema.group_by:
                types, name = self.column_types, str(self.source)
                batches = read_events(self._connection, self._relation, types, self.paths, name, schema, keys or {})
            else:
                batches = self._read_rows(schema, keys or {}, rows)
            for batch in batches:
                signals.raise_lost()
                yield batch
            if self.keep_malformed:
                self.malformed += rejects.refusals(self._connection, self.source.encoding)

    def _read_rows(self, schema: Schema, keys: Mapping[str, str], rows: int) -> Iterator[SourceRows]:
        columns = canonical_columns(schema, self.column_types, str(self.source), keys)
        relation = self._relation.sql
        # Rows are numbered in each file, or in the result of a query.
        if self.several_files:
            columns[FILE] = quote_identifier(FILE)
            relation = self._relation.named_sql
        stream = self._connection.sql(f"SELECT {select_list(columns)} FROM {relation}").to_arrow_reader(rows)
        yield from number_rows(rebatch(stream, rows), str(self.source), self.several_files)

    def _refuse_files(self) -> None:
        """Add unusable files of a folder to `malformed`, or raise InputError for the first unless `keep_malformed`."""
        refused = [] if self.source.listing is None else self.source.listing.refused
        refusals = [Refusal(url_of(str(path)), None, "the file", reason) for path, reason in refused]
        if refusals and not self.keep_malformed:
            raise refusals[0].error()
        self.malformed += refusals


def _spelled(schema: pa.Schema) -> pa.Schema:
    """Return the schema of a sample of a text file, with large strings for cells, whose spelling says what they are."""

    def spelled(kind: pa.DataType) -> pa.DataType:
        return pa.list_(spelled(kind.value_type)) if is_list(kind) else pa.large_string() if is_text(kind) else kind

    return pa.schema([field.with_type(spelled(field.type)) for field in schema])
