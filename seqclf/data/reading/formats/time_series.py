"""Time series archives (`.ts`): a header of @ lines, then rows such as `1,2,3:4,5,6:label`.

The channels of a row are separated by colons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import pyarrow as pa

from seqclf.data.reading.csv_dialect import lines
from seqclf.data.reading.format import Files, Format, TableSql
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.errors import InputError

MAX_HEADER_LINES = 10_000  # lines


class TimeSeries(Format):
    """Time series: the column `series`, and `label` where the header names classes."""

    endings: ClassVar[tuple[str, ...]] = (".ts",)
    by_lines: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        return lambda named_files: select_series(files.paths, FILE if named_files else None)


class Header(NamedTuple):
    """`lines`: count of the lines before the data. `has_label`: rows end with a label."""

    lines: int
    has_label: bool


def select_series(paths: Sequence[Path], file_column: str | None) -> str:
    """SQL of the rows of `.ts` files: `series` (a list of tokens, each a list of channels) and `label`, as text.

    Channels of different lengths are filled with nulls. A `?` becomes NaN. `file_column`: name of a column for the path
    of each row's file.
    """
    selects = []
    for path in paths:
        header = _read_header(path)
        file = f", {quote_literal(str(path))} AS {quote_identifier(file_column)}" if file_column else ""
        label = ", trim(parts[-1]) AS label" if header.has_label else ""
        options = "".join(
            f", {key} = {value}" for key, value in lines("utf-8", header=False, skip=header.lines).items()
        )
        # The file holds a list per channel; `generate_series` and the inner lambda transpose that.
        selects.append(
            f"SELECT list_transform(generate_series(1, list_max(list_transform(channels, lambda c: len(c)))), "
            f"lambda token: list_transform(channels, lambda c: c[token])) AS series{label}{file} FROM ("
            f"SELECT parts, list_transform(parts{'[:-2]' if header.has_label else ''}, lambda part: "
            "TRY_CAST(list_transform(string_split(part, ','), lambda v: CASE WHEN trim(v) = '?' THEN 'nan' ELSE v END) "
            "AS DOUBLE[])) AS channels FROM (SELECT string_split(line, ':') AS parts FROM "
            f"read_csv([{quote_literal(str(path))}]{options})))"
        )
    return "(" + " UNION ALL ".join(selects) + ")"


def _read_header(path: Path) -> Header:
    """Read the lines up to `@data`. Raises InputError if there is none, or if rows hold time stamps."""
    has_label = False
    with pa.input_stream(str(path), compression="detect") as stream:
        for number, line in enumerate(_lines(stream), start=1):
            words = line.decode("utf-8", "replace").lower().split()
            if words[:1] == ["@classlabel"]:
                has_label = words[1:2] == ["true"]
            if words[:2] == ["@timestamps", "true"]:
                raise InputError(f"{path}: line {number}", "@timeStamps true is not read", "write the values alone")
            if words[:1] == ["@data"]:
                return Header(number, has_label)
            if (words and not words[0].startswith(("@", "#", "%"))) or number > MAX_HEADER_LINES:
                break
    raise InputError(path, "has no @data line", "it is not a .ts file of the time series archives")


def _lines(stream: pa.NativeFile) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(65536):
        *complete_lines, rest = (rest + block).split(b"\n")
        yield from complete_lines
    if rest:
        yield rest
