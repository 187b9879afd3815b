"""Text files: delimited ones such as CSV and TSV, and plain ones in a folder with one for each label."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from seqclf.data.reading import csv_dialect
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.format import Files, TableSql, TextFormat, scan
from seqclf.data.reading.sources import COMPRESSED, class_folder
from seqclf.data.schema.casts import FILE, quote_identifier


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
            options = {**csv_dialect.lines(files.source.encoding), "filename": "true"}
            if files.keep_malformed:
                options |= rejects.read_options()
            rows = scan("read_csv", files.sql_list, options, named_files=False)
            compressions = "|".join(ending.removeprefix(".") for ending in COMPRESSED)
            name = f"regexp_replace(parse_filename(filename), '[.]({compressions})$', '')"
            label = f"regexp_replace({name}, '[.][^.]*$', '')"
        file = f", filename AS {quote_identifier(FILE)}"
        return lambda named_files: f"(SELECT line AS text, {label} AS label{file if named_files else ''} FROM {rows})"
