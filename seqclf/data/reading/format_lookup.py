"""Find the format of a file by the ending of its name."""

from __future__ import annotations

from pathlib import Path

from seqclf.data.reading.format import Format
from seqclf.data.reading.formats.arrow import Arrow
from seqclf.data.reading.formats.json_lines import JsonLines
from seqclf.data.reading.formats.parquet import Parquet
from seqclf.data.reading.formats.text import Delimited, PlainText
from seqclf.data.reading.formats.time_series import TimeSeries
from seqclf.data.reading.sources import Source, suffix_of
from seqclf.errors import InputError

FORMATS: tuple[Format, ...] = (Arrow(), Delimited(), JsonLines(), Parquet(), TimeSeries())
FOLDER_FORMAT = PlainText()


def find_format(source: Source, path: Path) -> Format:
    """Return the format of a file of a source. Raises InputError if no format has the ending of the file.

    >>> type(find_format(Source("new.tsv", "input"), Path("new.tsv"))).__name__
    'Delimited'
    """
    ending, where = suffix_of(path), f"{source.key}={source.path}"
    if source.listing is not None:
        if ending in FOLDER_FORMAT.endings:
            return FOLDER_FORMAT
        problem = f"a folder with a file or a folder per class must hold text files, not '{ending}'"
        raise InputError(where, problem, f"give the files themselves: {source.path}/**/*{ending}")
    for known in FORMATS:
        if ending in known.endings:
            return known
    endings = sorted(ending for known in FORMATS for ending in known.endings)
    remedy = f"give {', '.join(endings)} (text also as .gz), or a folder with a text file per class"
    raise InputError(where, f"unknown kind of file '{ending}'", remedy)
