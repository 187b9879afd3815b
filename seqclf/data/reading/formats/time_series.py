"""Time series files (`.ts`). Header lines begin with @; rows look like `1,2,3:4,5,6:label`, with : between channels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from seqclf.data.reading.csv_dialect import first_lines, lines
from seqclf.data.reading.format import Files, TableSql, TextFormat
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.errors import InputError

MAX_HEADER_LINES = 10_000  # maximum number of lines before the rows


class TimeSeries(TextFormat):
    """Format of time series files, with the column `series`, and `label` if the header declares classes."""

    endings: ClassVar[tuple[str, ...]] = (".ts",)

    def table(self, files: Files) -> TableSql:
        return lambda named_files: select_series(files.paths, FILE if named_files else None)


class Header(NamedTuple):
    """Header of a time series file. `lines`: lines before the rows. `has_label`: True if rows end with a label."""

    lines: int
    has_label: bool


def select_series(paths: Sequence[Path], file_column: str | None) -> str:
    """Return the SQL that reads time series files: `series`, lists of tokens with one number for each channel, and
    `label`.

    Shorter channels of a row are padded with nulls. A missing value, written as `?`, becomes NaN. `file_column`: name
    of a column with the path of each row's file, or None.
    """
    selects = []
    for path in paths:
        header = _read_header(path)
        file = f", {quote_literal(str(path))} AS {quote_identifier(file_column)}" if file_column else ""
        label = ", trim(parts[-1]) AS label" if header.has_label else ""
        options = "".join(f", {key} = {value}" for key, value in lines("utf-8", header.lines).items())
        # In the file, a row has one list for each channel. The SQL functions `generate_series` and `list_transform`
        # transpose the lists of channels into lists of tokens.
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
    """Raises InputError if there is no line `@data`, or if the rows have time stamps."""
    has_label = False
    with first_lines(path, "utf-8") as file:
        for number, line in enumerate(file, start=1):
            words = line.lower().split()
            if words[:1] == ["@classlabel"]:
                has_label = words[1:2] == ["true"]
            if words[:2] == ["@timestamps", "true"]:
                raise InputError(f"{path}: line {number}", "@timeStamps true is not read", "write the values alone")
            if words[:1] == ["@data"]:
                return Header(number, has_label)
            if (words and not words[0].startswith(("@", "#", "%"))) or number > MAX_HEADER_LINES:
                break
    raise InputError(path, "has no @data line", "it is not a .ts file of the time series archives")
