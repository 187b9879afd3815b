"""Parquet files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.data.reading.format import Files, Format, TableSql, scan
from seqclf.data.schema.schema import check_names
from seqclf.errors import InputError, first_line


class Parquet(Format):
    """Parquet files, of which DuckDB knows the number of each row."""

    endings: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    remote: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        for path in files.paths[:1]:
            check_names(_names(path), str(path))
        return partial(scan, "read_parquet", files.sql_list, {})

    def with_row_numbers(self, table: str) -> str | None:
        return f"{table[:-1]}, file_row_number = true)"


def _names(path: Path) -> list[str]:
    try:
        return pq.read_schema(path).names
    except pa.ArrowException as error:  # DuckDB's message would not name the file
        raise InputError(path, f"cannot be read: {first_line(error)}", "replace the file") from None
