"""Plain text files in a folder that has one file or one sub-folder for each label.

If there is one file for each label, each line of a file is one sequence. If there is one sub-folder for each label,
each file is one sequence.
"""

from __future__ import annotations

from typing import ClassVar

from seqclf.data.reading import csv_dialect
from seqclf.data.reading import source_errors as rejects
from seqclf.data.reading.format import Files, Format, TableSql, scan
from seqclf.data.schema.casts import FILE, quote_identifier


class PlainText(Format):
    """Format of plain text files. The rows have a single column with the name `text`."""

    endings: ClassVar[tuple[str, ...]] = (".txt", "")
    by_lines: ClassVar[bool] = True
    only_in_class_folders: ClassVar[bool] = True
    in_folder_per_class: ClassVar[bool] = True

    def table(self, files: Files) -> TableSql:
        if files.file_per_sequence:
            text, rows, order = "content", f"read_text({files.sql_list})", " ORDER BY filename"
        else:
            options = {**csv_dialect.lines(files.source.encoding, header=False), "filename": "true"}
            if files.keep_malformed:
                options |= rejects.read_options()
            text, rows, order = "line", scan("read_csv", files.sql_list, options, named_files=False), ""
        file = f", filename AS {quote_identifier(FILE)}"
        return lambda named_files: f"(SELECT {text} AS text{file if named_files else ''} FROM {rows}{order})"
