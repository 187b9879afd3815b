"""Writers of valid tables in every supported format.

The text formats are written row by row, so that the oracle knows the exact bytes of each row.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Columns = list[tuple[str, Any]]  # name, and cells as a list or Arrow array; names may repeat
SERIES = "@problemName fuzz\n@timeStamps false\n@classLabel true a b\n@data\n"


class Raw(str):
    """Text that is written into JSON without quotes."""


@dataclass(frozen=True)
class Base:
    """One valid file, or folder of files.

    `train`: data.train, relative to a folder. `form`: layout of the columns in the file. `key`: the column that
    identifies a sequence, empty if its first token does. `main`: the field whose tokens are compared.
    """

    kind: str
    train: str
    form: str
    columns: Columns
    options: dict[str, Any]
    key: str = "id"
    main: str = "tokens"
    delimiter: str = ","
    quote: str = '"'
    separator: str | None = None
    encoding: str = "utf-8"
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> bool:
        return "group_by" in self.options

    def column(self, name: str) -> list[Any]:
        return dict(self.columns)[name]

    def tokens(self) -> dict[str, list[Any]]:
        """Return key → tokens of the main field, in order."""
        if not self.events:
            spec = self.options["fields"][self.main]
            channels = spec.get("columns", [self.main]) if isinstance(spec, dict) else [self.main]
            cells = self.column(self.main)
            if len(channels) > 1:
                cells = [
                    [list(token) for token in zip(*row, strict=True)]
                    for row in zip(*map(self.column, channels), strict=True)
                ]
            keys = self.column(self.key) if self.key else [str(first_of(cell)) for cell in cells]
            return {key: cell if isinstance(cell, list) else [cell] for key, cell in zip(keys, cells, strict=True)}
        tokens: dict[str, list[Any]] = {}
        events = sorted(zip(self.column("id"), self.column("time"), self.column(self.main), strict=True))
        for key, _, value in events:
            tokens.setdefault(key, []).append(value)
        return tokens


def first_of(tokens: Any) -> Any:
    """Return the first word or number, which identifies a sequence without an id."""
    while isinstance(tokens, list):
        tokens = tokens[0]
    return tokens.split()[0] if isinstance(tokens, str) else float(tokens)


def as_text(value: Any, separator: str | None = None) -> str:
    """Return a value as the cell of a text format."""
    if isinstance(value, list) and separator is not None:
        return separator.join(str(entry) for entry in value)
    if isinstance(value, (list, dict)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)


def lines(base: Base, columns: Columns) -> list[str]:
    """Return the header, if the form has one, and the text of each row."""
    rows = list(zip(*(listed(cells) for _, cells in columns), strict=True))
    names = [name for name, _ in columns]
    if base.form == "json":
        return [
            "{" + ", ".join(f"{json.dumps(n)}: {_json(v)}" for n, v in zip(names, row, strict=True)) + "}"
            for row in rows
        ]
    if base.form == "series":
        return [":".join(_channels(row)) for row in rows]

    if base.form in ("class lines", "class texts"):
        return [as_text(row[0]) for row in rows]

    def quoted(text: str) -> str:
        if base.quote and any(mark in text for mark in (base.delimiter, base.quote, "\n", "\r")):
            return base.quote + text.replace(base.quote, 2 * base.quote) + base.quote
        return text

    table = [names, *([as_text(value, base.separator) for value in row] for row in rows)]
    return [base.delimiter.join(quoted(text) for text in row) for row in table]


def _json(value: Any) -> str:
    return value if isinstance(value, Raw) else json.dumps(value)


def _channels(row: tuple[Any, ...]) -> list[str]:
    tokens, *rest = row
    if not (
        isinstance(tokens, list) and tokens and all(isinstance(entry, list) and len(entry) == 2 for entry in tokens)
    ):
        return [as_text(value) for value in row]
    return [",".join(str(token[channel]) for token in tokens) for channel in range(2)] + [
        as_text(value) for value in rest
    ]


def encoded(base: Base, text: str) -> bytes:
    return text.encode(base.encoding, "replace" if base.encoding == "latin-1" else "surrogatepass")


def write(base: Base, folder: Path, columns: Columns) -> list[Path]:
    """Write the files of a base with these columns. A separate file of labels comes last."""
    files = _write(base, folder, columns)
    if base.labels:
        text = "".join(f"{key},{label}\n" for key, label in [("id", "label"), *base.labels.items()])
        files.append(folder / "labels.csv")
        files[-1].write_text(text, encoding="utf-8")
    return files


def _write(base: Base, folder: Path, columns: Columns) -> list[Path]:
    path = folder / base.train
    if base.form == "columnar":
        return [write_columnar(path, pa.Table.from_arrays([as_arrow(v) for _, v in columns], [n for n, _ in columns]))]
    if base.form in ("class lines", "class texts"):
        return _write_classes(base, path, columns)
    rows = lines(base, columns)
    if base.form == "parts":
        half = 1 + len(rows) // 2
        parts = {"part0.csv": rows[:half], "part1.csv": [rows[0], *rows[half:]]}
        for name, part in parts.items():
            (folder / name).write_bytes(encoded(base, "\n".join([*part, ""])))
        return [folder / name for name in parts]
    data = encoded(base, (SERIES if base.form == "series" else "") + "\n".join([*rows, ""]))
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return [path]


def _write_classes(base: Base, path: Path, columns: Columns) -> list[Path]:
    """Write a file per class with a line per row, or a folder per class with a file per row."""
    texts, labels = ([as_text(value) for value in cells] for _, cells in columns[:2])
    for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
        name = "".join(letter for letter in label if letter.isalnum())[:40] or "empty"
        file = path / (f"{name}.txt" if base.form == "class lines" else f"{name}/{row:03d}.txt")
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as stream:
            stream.write(encoded(base, text + "\n"))
    return sorted(file for file in path.rglob("*") if file.is_file())


def write_columnar(path: Path, table: pa.Table) -> Path:
    """Write a table in several row groups or record batches."""
    if path.suffix == ".parquet":
        for index, name in enumerate(table.column_names):
            if pa.types.is_interval(table.column(index).type):  # Parquet has no intervals
                table = table.set_column(index, name, pa.array(map(str, table.column(index).to_pylist())))
        pq.write_table(table, path, row_group_size=7)
        return path
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return path


def as_arrow(cells: Any) -> pa.Array:
    """Return the cells as an array, or their texts if they have no common type."""
    if isinstance(cells, pa.Array):
        return cells
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        texts = (None if value is None else as_text(value) for value in cells)
        return pa.array([None if text is None else text.encode("utf-8", "replace").decode() for text in texts])


def listed(cells: Any) -> list[Any]:
    return cells.to_pylist() if isinstance(cells, pa.Array) else list(cells)
