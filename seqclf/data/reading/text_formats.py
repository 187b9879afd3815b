"""Formats of text files: delimited ones such as CSV, plain ones in a folder, time series (`.ts`), and JSON lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import duckdb

from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.csv_dialect import DELIMITERS, detect_dialect, first_lines, lines
from seqclf.data.reading.format import Files, Format, TableSql, TextFormat, describe_columns, scan
from seqclf.data.reading.queries import connect
from seqclf.data.reading.sources import COMPRESSED, SourceState, class_folder, source_state
from seqclf.data.schema.casts import FILE, quote_identifier, quote_literal
from seqclf.errors import InputError


class Delimited(TextFormat):
    """Format of delimited text files. The dialect of the files is detected, and every cell is read as text."""

    endings: ClassVar[tuple[str, ...]] = tuple(DELIMITERS)

    def table(self, files: Files) -> TableSql:
        dialect = detect_dialect(files.paths, files.source)
        options = {**files.partitions, **dialect.options}
        # DuckDB stores a copy of a malformed line for each surplus cell, so lists without quotes would fill the
        # memory. Without storing, the first malformed line stops the query.
        if files.keep_malformed and not dialect.has_long_surplus:
            options |= rejects.read_options()
        return partial(scan, "read_csv", files.sql_list, options)


class PlainText(TextFormat):
    """Format of plain text files, with the columns `text` and `label`, the name of the sub-folder or of the file.

    In a sub-folder for each label, a file is a sequence. In a file for each label, a line is one.
    """

    endings: ClassVar[tuple[str, ...]] = (".txt", "")

    def table(self, files: Files) -> TableSql:
        folder, listing = class_folder(files.source), files.source.listing
        if folder is not None and listing is not None and listing.per_class:
            rows = f"(SELECT content AS line, filename FROM read_text({files.sql_list}) ORDER BY filename)"
            below = f"substr(filename, {len(str(folder / '_'))})"  # path relative to the folder
            label = f"split_part({below}, '/', 1)"
        else:
            options = {**lines(files.source.encoding), "filename": "true"}
            if files.keep_malformed:
                options |= rejects.read_options()
            rows = scan("read_csv", files.sql_list, options, named_files=False)
            compressions = "|".join(ending.removeprefix(".") for ending in COMPRESSED)
            name = f"regexp_replace(parse_filename(filename), '[.]({compressions})$', '')"
            label = f"regexp_replace({name}, '[.][^.]*$', '')"
        file = f", filename AS {quote_identifier(FILE)}"
        return lambda named_files: f"(SELECT line AS text, {label} AS label{file if named_files else ''} FROM {rows})"


MAX_HEADER_LINES = 10_000  # maximum number of lines before the rows


class TimeSeries(TextFormat):
    """Format of time series files, with the column `series`, and `label` if the header declares classes."""

    endings: ClassVar[tuple[str, ...]] = (".ts",)

    def table(self, files: Files) -> TableSql:
        return lambda named_files: select_series(files.paths, FILE if named_files else None)


class Header(NamedTuple):
    """`lines`: lines of a time series file before the rows. `has_label`: True if rows end with a label."""

    lines: int
    has_label: bool


def select_series(paths: Sequence[Path], file_column: str | None) -> str:
    """Return SQL that reads time series files: `series`, lists of tokens with a number per channel, and `label`.

    Shorter channels of a row are padded with nulls. A missing value, written as `?`, becomes NaN. `file_column`: name
    of a column with the path of each row's file, or None.
    """
    selects = []
    for path in paths:
        header = _read_header(path)
        file = f", {quote_literal(str(path))} AS {quote_identifier(file_column)}" if file_column else ""
        label = ", trim(parts[-1]) AS label" if header.has_label else ""
        options = "".join(f", {key} = {value}" for key, value in lines("utf-8", header.lines).items())
        # The file has a list for each channel, which `generate_series` and `list_transform` transpose.
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


class JsonLines(Format):
    """Format of JSON files. The column types are inferred from all rows."""

    endings: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".ndjson")

    def table(self, files: Files) -> TableSql:
        read = scan("read_json", files.sql_list, {**files.partitions, "sample_size": "-1"}, False)
        types = _types(read, files.sql_list, source_state(files.source))
        columns = ", ".join(f"{quote_literal(name)}: {quote_literal(kind)}" for name, kind in types.items())
        return partial(scan, "read_json", files.sql_list, {**files.partitions, "columns": f"{{{columns}}}"})


@lru_cache(maxsize=64)
def _types(read: str, files: str, state: SourceState) -> dict[str, str]:
    """Return dict column → DuckDB type by all rows. Dates, times, UUIDs and integers beyond 64 bits are texts."""
    with connect() as connection:
        types = describe_columns(connection, read)
        wide = _wide_columns(connection, files, types)
    dates = r"\b(DATE|UUID|TIME(STAMP)?(_NS|_MS|_S)?( WITH TIME ZONE)?)\b"
    wider = rf"{dates}|\b(DOUBLE|HUGEINT)\b"
    return {name: re.sub(wider if name in wide else dates, "VARCHAR", kind) for name, kind in types.items()}


def _wide_columns(connection: duckdb.DuckDBPyConnection, files: str, types: Mapping[str, str]) -> set[str]:
    """Return the columns of whole numbers of which one may have more than 64 bits, so that floats would round them."""
    names = [name for name, kind in types.items() if kind.removesuffix("[]") in ("DOUBLE", "HUGEINT")]
    if not names:
        return set()
    columns = ", ".join(f"{quote_literal(name)}: 'JSON'" for name in names)
    texts = (f"CAST({quote_identifier(name)} AS VARCHAR)" for name in names)
    tests = (
        f"bool_or(regexp_matches({text}, '[0-9]{{19}}')) AND NOT bool_or(regexp_matches({text}, '[.eE]'))"
        for text in texts
    )
    (found,) = connection.sql(f"SELECT {', '.join(tests)} FROM read_json({files}, columns = {{{columns}}})").fetchall()
    return {name for name, is_wide in zip(names, found, strict=True) if is_wide}
