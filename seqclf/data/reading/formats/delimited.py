"""Delimited text files, such as CSV and TSV."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from seqclf.data.reading import csv_dialect
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.format import Files, TableSql, TextFormat, scan


class Delimited(TextFormat):
    """Format of delimited text files. The dialect of the files is detected, and every cell is read as text."""

    endings: ClassVar[tuple[str, ...]] = tuple(csv_dialect.DELIMITERS)

    def table(self, files: Files) -> TableSql:
        dialect = csv_dialect.detect_dialect(files.paths, files.source)
        options = {**files.partitions, **dialect.options}
        # DuckDB stores a copy of a malformed line for each surplus cell, so lists without quotes would fill the memory.
        # If malformed lines are not stored, the first malformed line stops the query.
        if files.keep_malformed and not dialect.has_long_surplus:
            options |= rejects.read_options()
        return partial(scan, "read_csv", files.sql_list, options)
