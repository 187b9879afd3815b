"""Independent oracle of the fuzzer: rows of a mutated file, read without the code under test."""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzzing.files import Base, encoded, lines

from seqclf.data.reading.csv_dialect import MAX_LINE_CHARACTERS

csv.field_size_limit(2**31 - 1)


@dataclass
class Truth:
    """Facts on a mutated file. None means unknown.

    `rows`: least and greatest number of rows that may be used or refused, as an empty line may count as a row.
    `events`: number of events of an event table, malformed lines included. `keys`: keys of all rows in order.
    `untouched`: key → position of its record, for records that are unchanged and the only ones with that key.
    `damage`: reason why the file must not be read as complete.
    """

    rows: tuple[int, int] | None = None
    events: int | None = None
    keys: list[str] | None = None
    untouched: dict[str, int] | None = None
    damage: str | None = None


def truth(base: Base, files: list[Path]) -> Truth:
    """Return the facts on the files of a mutated base."""
    if base.form == "columnar":
        return _columnar(base, files[0])
    if base.form == "class texts":
        contents = [path.read_bytes() for path in files]
        key_of_content = {
            encoded(base, line + "\n"): key for key, line in zip(base.tokens(), lines(base, base.columns), strict=True)
        }
        untouched = {
            key_of_content[data]: position
            for position, data in enumerate(contents)
            if contents.count(data) == 1 and data in key_of_content
        }
        return Truth(rows=(len(files), len(files)), untouched=untouched)
    contents = []
    for path in files[: -1 if base.labels else None]:
        data = path.read_bytes()
        if path.suffix == ".gz":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                return Truth(damage=f"gzip: {error}")
        contents.append(data)
    if base.form == "json":
        return _json(base, contents[0])
    if base.form == "series":
        _, _, data = contents[0].partition(b"@data\n")
        return Truth(rows=_rows(data.decode("utf-8", "replace")) if data else None, untouched=_untouched(base, data))
    if base.form == "class lines":
        counts = [_rows(data.decode("utf-8", "replace")) for data in contents]
        rows = sum(least for least, _ in counts), sum(most for _, most in counts)
        return Truth(rows=rows, untouched=_untouched(base, b"".join(contents)))
    return _separated(base, contents)


def _rows(text: str) -> tuple[int, int]:
    """Return the number of lines that are not empty, and of all lines."""
    text_lines = re.split("\r\n|\n|\r", text.removesuffix("\n"))
    return sum(map(bool, text_lines)), len(text_lines)


def _columnar(base: Base, path: Path) -> Truth:
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path)
        else:
            with pa.ipc.open_file(str(path)) as reader:
                table = reader.read_all()
        table.validate(full=True)
        cells = table.column("id").to_pylist()
        keys = [None if key is None else str(key) for key in cells]
        names = [name for name, _ in base.columns]
        original_rows = _by_key(base.column("id"), *map(base.column, names))
        mutated_rows = _by_key(keys, *(table.column(name).to_pylist() for name in names))
        untouched = {key: keys.index(key) for key, rows in mutated_rows.items() if original_rows.get(key) == rows}
        if base.events:
            return Truth(rows=(len(set(cells)),) * 2, events=len(cells), untouched=untouched)
        all_strings = all(isinstance(cell, str) for cell in cells)
        return Truth(rows=(len(keys),) * 2, keys=keys if all_strings else None, untouched=untouched)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError):
        return Truth()


def _by_key(keys: list[Any], *columns: list[Any]) -> dict[Any, list[Any]]:
    """Return key → rows, in the order of the file."""
    rows: dict[Any, list[Any]] = {}
    for key, row in zip(keys, zip(*columns, strict=True), strict=True):
        rows.setdefault(key, []).append(row)
    return rows


def _json(base: Base, data: bytes) -> Truth:
    try:
        text = data.decode("utf-8-sig")
        parsed = [json.loads(line) for line in text.splitlines(keepends=False) if line.strip()]
    except (ValueError, RecursionError) as error:
        return Truth(damage=f"JSON: {str(error)[:80]}", untouched=_untouched(base, data))
    if not all(isinstance(entry, dict) for entry in parsed):
        return Truth(untouched=_untouched(base, data))
    keys = [entry.get("id") for entry in parsed]
    if base.events:
        groups = {json.dumps(key) for key in keys}
        return Truth(rows=(len(groups),) * 2, events=len(keys), untouched=_untouched(base, data))
    all_strings = all(isinstance(key, str) for key in keys)
    return Truth(rows=(len(parsed),) * 2, keys=keys if all_strings else None, untouched=_untouched(base, data))


def _separated(base: Base, contents: list[bytes]) -> Truth:
    """Count rows if every line is one record, so that no quote can hide a line end."""
    untouched = _untouched(base, b"".join(contents))
    count = events = 0
    for data in contents:
        text = data.decode(base.encoding, "replace").removeprefix("\ufeff")
        records = [line for line in re.split("\r\n|\n|\r", text) if line]
        if not records or not all(_is_record(base, line) for line in records):
            return Truth(untouched=untouched)
        count += len(records) - 1
        if base.events:
            short = [line for line in records if len(line) < MAX_LINE_CHARACTERS]
            header, *events_read = (next(csv.reader([line], delimiter=base.delimiter)) for line in short)
            complete = [event for event in events_read if len(event) == len(header)]
            if "id" not in header or "\ufffd" in text:
                return Truth(untouched=untouched)
            count, events = len({event[header.index("id")] for event in complete}), len(records) - 1
    return Truth(rows=(count, count), events=events if base.events else None, untouched=untouched)


def _is_record(base: Base, line: str) -> bool:
    if base.quote and line.count(base.quote) % 2:
        return False
    quoting = {"quotechar": base.quote} if base.quote else {"quoting": csv.QUOTE_NONE}
    try:
        return len(list(csv.reader([line], delimiter=base.delimiter, strict=True, **quoting))) == 1
    except csv.Error:
        return False


def _untouched(base: Base, data: bytes) -> dict[str, int]:
    """Return key → position of untouched records. There are none if the header was changed."""
    records = lines(base, base.columns)
    if base.form in ("separated", "parts"):
        header, *records = records
        if not data.startswith(encoded(base, header + "\n")):
            return {}
    keys = list(base.tokens()) if not base.key else base.column("id")
    mark = b"\xff\xfe" if base.encoding == "utf-16" else b""
    data, original = b"\n" + data, encoded(base, "\n".join(["", *records])).removeprefix(mark)
    positions: dict[str, int] = {}
    changed = set()
    for key, line in zip(keys, records, strict=True):
        name = encoded(base, f"\n{key}," if base.form == "series" else key).removeprefix(mark)
        position = data.find(encoded(base, f"\n{line}\n").removeprefix(mark))
        if position < 0 or data.count(name) != original.count(name):
            changed.add(key)
        positions.setdefault(key, position)
    return {key: position for key, position in positions.items() if key not in changed}
