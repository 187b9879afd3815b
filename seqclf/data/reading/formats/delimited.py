"""Delimited text files, such as CSV and TSV."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from seqclf.data.reading import csv_dialect
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.format import Files, Format, TableSql, scan


class Delimited(Format):
    """Format of delimited text files. The dialect of the files is detected, and every cell is read as text."""

    endings: ClassVar[tuple[str, ...]] = tuple(csv_dialect.DELIMITERS)
    by_lines: ClassVar[bool] = True
    remote: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        source = files.source
        dialect = csv_dialect.detect_dialect(
            files.paths,
            files.ending,
            header=source.header,
            encoding=source.encoding,
            quote=source.quote,
            delimiter=source.delimiter,
        )
        options = {**files.partitions, **dialect.options()}
        # Malformed lines are not stored if they have too many surplus cells, because DuckDB would then run out of
        # memory. If malformed lines are not stored, the first malformed line stops the query.
        if files.keep_malformed and files.paths and csv_dialect.can_keep_malformed(files.paths, dialect):
            options |= rejects.read_options()
        return partial(scan, "read_csv", files.sql_list, options)
