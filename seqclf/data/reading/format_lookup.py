"""Find the format of a file by the ending of its name."""

from __future__ import annotations

from pathlib import Path

from seqclf.data.reading.format import Format
from seqclf.data.reading.formats.arrow import Arrow
from seqclf.data.reading.formats.delimited import Delimited
from seqclf.data.reading.formats.json_lines import JsonLines
from seqclf.data.reading.formats.parquet import Parquet
from seqclf.data.reading.formats.plain_text import PlainText
from seqclf.data.reading.formats.time_series import TimeSeries
from seqclf.data.reading.sources import Source, suffix_of
from seqclf.errors import InputError

FORMATS: tuple[Format, ...] = (Arrow(), Delimited(), JsonLines(), Parquet(), PlainText(), TimeSeries())


def find_format(source: Source, path: Path | str, in_class_folder: bool = False) -> Format:
    """Return the format of a file. Raises InputError if no format has the ending of the file.

    The error lists the known endings. `in_class_folder`: True if the file is in a folder with one file or one
    sub-folder for each label.

    >>> type(find_format(Source("new.tsv", "input"), "new.tsv")).__name__
    'Delimited'
    """
    ending = suffix_of(path)
    candidates = [entry for entry in FORMATS if ending in entry.endings]
    if not in_class_folder:
        candidates = [entry for entry in candidates if not entry.only_in_class_folders]
    if candidates:
        return max(candidates, key=lambda candidate: candidate.only_in_class_folders)
    endings = sorted({known for entry in FORMATS if not entry.only_in_class_folders for known in entry.endings})
    raise InputError(
        f"{source.key}={source.path}",
        f"unknown kind of file '{ending}'",
        f"give {', '.join(endings)} (text also as .gz), or a folder with a file per class",
    )
