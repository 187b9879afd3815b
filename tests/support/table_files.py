"""Writers of small tables in every format, and shortcuts to read them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import quote_identifier
from seqclf.data.schema.rows import SourceRows
from seqclf.data.schema.schema import Schema

LABELS = ["a", "b"] * 10
TOKENS = [[1 + row % 5, 2, 3 + row % 3][: 1 + row % 3] for row in range(20)]


def write_csv(path: Path, columns: dict[str, list[Any]], separator: str | None = None, delimiter: str = ",") -> Path:
    """Write a CSV file. A list becomes a JSON array in its cell, or its elements joined by `separator`."""

    def cell(value: Any) -> str:
        if isinstance(value, list):
            joined = separator is not None and separator.join(str(entry) for entry in value)
            value = joined if separator is not None else json.dumps(value, ensure_ascii=False)
        return "" if value is None else '"' + str(value).replace('"', '""') + '"'

    rows = [columns.keys(), *zip(*columns.values(), strict=True)]
    path.write_text("".join(delimiter.join(map(cell, row)) + "\n" for row in rows), encoding="utf-8", newline="")
    return path


def write_arrow(path: Path, table: pa.Table) -> Path:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    return path


def write(path: Path, columns: dict[str, Any]) -> Path:
    """Write columns in the format of the file extension. Cells are lists, or Arrow arrays for Parquet and Arrow."""
    kind = path.suffixes[0]
    if kind == ".csv":
        return write_csv(path, columns)
    if kind == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path
    if kind == ".parquet":
        pq.write_table(pa.table(columns), path)
        return path
    return write_arrow(path, pa.table(columns))


def write_lines(path: Path, lines: list[str], encoding: str = "utf-8") -> Path:
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


def simple(**extra: Any) -> dict[str, Any]:
    """Return 20 valid rows of two classes: `tokens`, `label` and the `extra` columns."""
    return {"tokens": TOKENS, "label": LABELS, **extra}


def read(source: Source, schema: Schema, **options: Any) -> list[SourceRows]:
    """Return all rows of a source. `options` are those of `SourceReader.read`."""
    with SourceReader(source) as reader:
        return list(reader.read(schema, **options))


def column_types(source: Source) -> dict[str, str]:
    with SourceReader(source) as reader:
        return reader.column_types


def sample(source: Source, rows: int) -> pa.Table:
    """Return the first rows without malformed lines, from which training infers the schema."""
    with SourceReader(source, keep_malformed=True) as reader:
        return reader.sample(rows)


def cells(path: Path, **options: Any) -> dict[str, list[Any]]:
    """Return every column of a file. `options` are those of `Source`."""
    with SourceReader(Source(str(path), "data.train", **options)) as reader:
        return reader.select({name: quote_identifier(name) for name in reader.column_types}).to_pydict()
