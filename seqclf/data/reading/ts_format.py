"""The `.ts` files of the time series archives: a header of @ lines, then `1,2,3:4,5,6:label`, a channel per colon."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from seqclf.data.reading.casts import quote_identifier, quote_literal
from seqclf.data.reading.csv_dialect import lines
from seqclf.errors import InputError

LONGEST_HEADER = 10_000  # lines


def select_series(paths: list[Path], file_column: str | None) -> str:
    """SQL of the rows of `.ts` files: `series` (a list of steps, each a list of channels) and `label`, as text.

    Channels of different lengths are filled with nulls; a `?` is a null.
    """
    selects = []
    for path in paths:
        header_lines, has_label = _header(path)
        file = f", {quote_literal(str(path))} AS {quote_identifier(file_column)}" if file_column else ""
        label = ", trim(parts[-1]) AS label" if has_label else ""
        options = "".join(
            f", {key} = {value}" for key, value in lines("utf-8", header=False, skip=header_lines).items()
        )
        # A list of channels becomes a list of steps.
        selects.append(
            f"SELECT list_transform(generate_series(1, list_max(list_transform(channels, lambda c: len(c)))), "
            f"lambda step: list_transform(channels, lambda c: c[step])) AS series{label}{file} FROM ("
            f"SELECT parts, list_transform(parts{'[:-2]' if has_label else ''}, lambda part: "
            "TRY_CAST(list_transform(string_split(part, ','), lambda v: CASE WHEN trim(v) = '?' THEN 'nan' ELSE v END) "
            "AS DOUBLE[])) AS channels FROM (SELECT string_split(line, ':') AS parts FROM "
            f"read_csv([{quote_literal(str(path))}]{options})))"
        )
    return "(" + " UNION ALL ".join(selects) + ")"


def _header(path: Path) -> tuple[int, bool]:
    """How many lines come before the data, and whether rows end with a label."""
    has_label = False
    with pa.input_stream(str(path), compression="detect") as stream:
        for number, line in enumerate(_lines(stream), start=1):
            words = line.decode("utf-8", "replace").lower().split()
            if words[:1] == ["@classlabel"]:
                has_label = words[1:2] == ["true"]
            if words[:2] == ["@timestamps", "true"]:
                raise InputError(f"{path}: line {number}: @timeStamps true is not read; write the values alone")
            if words[:1] == ["@data"]:
                return number, has_label
            if (words and not words[0].startswith(("@", "#", "%"))) or number > LONGEST_HEADER:
                break
    raise InputError(f"{path}: has no @data line; it is not a .ts file of the time series archives")


def _lines(stream: pa.NativeFile):
    held = b""
    while block := stream.read(65536):
        *whole, held = (held + block).split(b"\n")
        yield from whole
    if held:
        yield held
