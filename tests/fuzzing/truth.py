"""What a mutated file holds, found without the readers under test: how many rows, which, and which are as they were."""

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

from seqclf.data.reading.formats.csv_dialect import LONGEST_LINE

csv.field_size_limit(2**31 - 1)


@dataclass
class Truth:
    """`rows`: the fewest and the most that may be used or refused (an empty line may count as a row), null where
    nobody can say; `events`: likewise of an event table, malformed lines included; `keys`: of all rows in order,
    where each number of a row is known; `places`: key → where its untouched record stands, the only one that
    mentions the key; `damage`: why the file cannot be taken for whole."""

    rows: tuple[int, int] | None = None
    events: int | None = None
    keys: list[str] | None = None
    places: dict[str, int] | None = None
    damage: str | None = None


def truth(base: Base, files: list[Path]) -> Truth:
    if base.form == "columnar":
        return _columnar(base, files[0])
    if base.form == "class texts":
        contents = [path.read_bytes() for path in files]
        known = {
            encoded(base, line + "\n"): key for key, line in zip(base.steps(), lines(base, base.columns), strict=True)
        }
        same = {
            known[data]: place for place, data in enumerate(contents) if contents.count(data) == 1 and data in known
        }
        return Truth(rows=(len(files), len(files)), places=same)
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
        return Truth(rows=_rows(data.decode("utf-8", "replace")) if data else None, places=_places(base, data))
    if base.form == "class lines":
        counts = [_rows(data.decode("utf-8", "replace")) for data in contents]
        rows = sum(least for least, _ in counts), sum(most for _, most in counts)
        return Truth(rows=rows, places=_places(base, b"".join(contents)))
    return _separated(base, contents)


def _rows(text: str) -> tuple[int, int]:
    """How many lines hold anything, and how many there are."""
    found = re.split("\r\n|\n|\r", text.removesuffix("\n"))
    return sum(map(bool, found)), len(found)


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
        before = _by_key(base.column("id"), *map(base.column, names))
        after = _by_key(keys, *(table.column(name).to_pylist() for name in names))
        same = {key: keys.index(key) for key, rows in after.items() if before.get(key) == rows}
        if base.events:
            return Truth(rows=(len(set(cells)),) * 2, events=len(cells), places=same)
        known = all(isinstance(cell, str) for cell in cells)
        return Truth(rows=(len(keys),) * 2, keys=keys if known else None, places=same)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, OverflowError):
        return Truth()


def _by_key(keys: list[Any], *columns: list[Any]) -> dict[Any, list[Any]]:
    """Key → its rows, in the order of the file."""
    found: dict[Any, list[Any]] = {}
    for key, row in zip(keys, zip(*columns, strict=True), strict=True):
        found.setdefault(key, []).append(row)
    return found


def _json(base: Base, data: bytes) -> Truth:
    try:
        text = data.decode("utf-8-sig")
        parsed = [json.loads(line) for line in text.splitlines(keepends=False) if line.strip()]
    except (ValueError, RecursionError) as error:
        return Truth(damage=f"JSON: {str(error)[:80]}", places=_places(base, data))
    if not all(isinstance(entry, dict) for entry in parsed):
        return Truth(places=_places(base, data))
    keys = [entry.get("id") for entry in parsed]
    if base.events:
        known = {json.dumps(key) for key in keys}
        return Truth(rows=(len(known),) * 2, events=len(keys), places=_places(base, data))
    usual = all(isinstance(key, str) for key in keys)
    return Truth(rows=(len(parsed),) * 2, keys=keys if usual else None, places=_places(base, data))


def _separated(base: Base, contents: list[bytes]) -> Truth:
    """Rows are counted where every line is a record of its own, so that no quote can hide a line end."""
    places = _places(base, b"".join(contents))
    count = events = 0
    for data in contents:
        text = data.decode(base.encoding, "replace").removeprefix("\ufeff")
        found = [line for line in re.split("\r\n|\n|\r", text) if line]
        if not found or not all(_is_record(base, line) for line in found):
            return Truth(places=places)
        count += len(found) - 1
        if base.events:
            short = [line for line in found if len(line) < LONGEST_LINE]
            header, *records = (next(csv.reader([line], delimiter=base.delimiter)) for line in short)
            whole = [record for record in records if len(record) == len(header)]
            if "id" not in header or "\ufffd" in text:
                return Truth(places=places)
            count, events = len({record[header.index("id")] for record in whole}), len(found) - 1
    return Truth(rows=(count, count), events=events if base.events else None, places=places)


def _is_record(base: Base, line: str) -> bool:
    if base.quote and line.count(base.quote) % 2:
        return False
    quoting = {"quotechar": base.quote} if base.quote else {"quoting": csv.QUOTE_NONE}
    try:
        return len(list(csv.reader([line], delimiter=base.delimiter, strict=True, **quoting))) == 1
    except csv.Error:
        return False


def _places(base: Base, data: bytes) -> dict[str, int]:
    """Of the keys whose records are untouched, in a file whose header is."""
    found = lines(base, base.columns)
    if base.form in ("separated", "parts"):
        header, *found = found
        if not data.startswith(encoded(base, header + "\n")):
            return {}
    keys = list(base.steps()) if not base.key else base.column("id")
    mark = b"\xff\xfe" if base.encoding == "utf-16" else b""
    data, whole = b"\n" + data, encoded(base, "\n".join(["", *found])).removeprefix(mark)
    places: dict[str, int] = {}
    broken = set()
    for key, line in zip(keys, found, strict=True):
        name = encoded(base, f"\n{key}," if base.form == "series" else key).removeprefix(mark)
        place = data.find(encoded(base, f"\n{line}\n").removeprefix(mark))
        if place < 0 or data.count(name) != whole.count(name):
            broken.add(key)
        places.setdefault(key, place)
    return {key: place for key, place in places.items() if key not in broken}
