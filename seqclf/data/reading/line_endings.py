r"""Copies of text files whose lines end in different ways. In a copy, every line ends with `\n`.

DuckDB reads other files only in a lenient mode, which drops surplus cells without an error.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.data.reading.csv_dialect import opened
from seqclf.errors import InputError
from seqclf.system.atomic_files import PREFIX

SCRATCH = "reading-"  # beginning of the name of a reader's temporary folder, after the general prefix
COPIES = "lines"  # folder with copies in the temporary folder
# Part of a copy's path before the original path; also a regex in DuckDB
COPY = rf"[^\s'\"]*{re.escape(PREFIX)}{SCRATCH}\w+/{COPIES}"
BLOCK = 2**20
# DuckDB reports a line of more than 2 MB. Where it stores malformed lines, it drops a line of more than its buffer of
# 32 MB without an error.
MAX_LINE_BYTES = 2**24
LONG_LINE = "longer than the 2 MB a line of text can have"
LONG_LINE_REMEDY = "remove it, or write such data as JSON lines, Parquet or Arrow"


def uniform(paths: Sequence[Path], folder: Path, encoding: str) -> list[Path]:
    """Return `paths`, with a copy in place of each file whose lines end in different ways, unless it is UTF-16.

    The path of a copy is that of `folder`, followed by the absolute path of the original.
    """
    return [_copied(path, folder) if is_mixed(path, path.stat().st_mtime, encoding) else path for path in paths]


def original(text: str) -> str:
    """In a text, replace the path of each copy by the path of the original file."""
    return re.sub(COPY, "", text)


@lru_cache(maxsize=64)
def is_mixed(path: Path, state: float, encoding: str) -> bool:
    """Return True if lines end in different ways, False for UTF-16. Raises InputError for a line that DuckDB would
    drop.

    `state`: modification time, as a key of the cache.
    """
    unix = windows = old_mac = without_end = 0
    last_byte = b""
    is_wide = encoding == "utf-16"
    file: Any = opened(path, encoding) if is_wide else pa.input_stream(str(path), compression="detect")
    with file as stream:
        while block := stream.read(BLOCK).encode() if is_wide else stream.read(BLOCK):
            # A line ending \r\n may be divided between two blocks.
            pairs = block.count(b"\r\n") + (last_byte == b"\r" and block[:1] == b"\n")
            windows += pairs
            unix += block.count(b"\n") - pairs
            old_mac += block.count(b"\r") - pairs
            last_byte = block[-1:]
            without_end = 0 if b"\n" in block or b"\r" in block else without_end + len(block)
            if without_end > MAX_LINE_BYTES:
                raise InputError(f"{path}: line {unix + windows + old_mac + 1}", LONG_LINE, LONG_LINE_REMEDY)
    return not is_wide and (unix > 0) + (windows > 0) + (old_mac > 0) > 1


def copy_path(path: Path, folder: Path) -> Path:
    """Return the path of a new copy of a file. The folders of the copy are created."""
    copy = Path(f"{folder}{path.absolute()}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy


def _copied(path: Path, folder: Path) -> Path:
    copy = copy_path(path, folder)
    source: Any = pa.input_stream(str(path), compression="detect")
    target: Any = pa.output_stream(str(copy), compression="detect")
    with (
        io.TextIOWrapper(source, "latin-1", newline=None) as lines,  # latin-1 keeps the bytes of any encoding
        io.TextIOWrapper(target, "latin-1", newline="") as uniform_lines,
    ):
        shutil.copyfileobj(lines, uniform_lines, BLOCK)
    return copy
