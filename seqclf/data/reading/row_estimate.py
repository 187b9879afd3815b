"""Estimate the number of rows in a source. The progress bar shows the estimated number.

The estimate reads a few megabytes at most.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import suffix_of
from seqclf.system import progress
from seqclf.system.progress import Estimate

COUNTED = (".parquet", ".arrow", ".feather")  # endings of files that store the number of their rows
LINES = (".csv", ".tsv", ".txt", ".tab", ".jsonl", ".ndjson", ".ts")  # endings of text files; each line is a row
SAMPLED_FILES = 4
SAMPLED_BYTES = 2**19  # bytes read from each sampled file
GZIP_RATIO = 3.0  # assumed compression ratio of text; used if the size stored in a gzip file is not plausible


def estimate_rows(reader: SourceReader) -> int | None:
    """Estimate the number of rows in a source.

    Returns None if an estimate would be slow, or if no progress is shown.
    """
    if not progress.is_shown() or not reader.paths or reader.source.query is not None:
        return None
    listing = reader.source.listing
    if listing is not None and listing.per_class and suffix_of(reader.paths[0]) not in COUNTED:
        return len(reader.paths)  # each file is one sequence
    suffix = suffix_of(reader.paths[0])
    if suffix in COUNTED:
        return reader.count_rows()
    return estimate_lines(reader.paths) if suffix in LINES else None


def estimate_lines(paths: list[Path]) -> Estimate | None:
    """Estimate the number of lines in text files from the sizes of the files and a sample of their lines.

    The sample is the beginning of each of the largest files. Returns None if a file cannot be read, or if the size of
    its uncompressed text is unknown.
    """
    try:
        sizes = {path: _text_size(path) for path in paths}
        largest = sorted(paths, key=lambda path: -(sizes[path] or 0))[:SAMPLED_FILES]
        heads = [_head(path) for path in largest]
    except (OSError, EOFError, zlib.error):
        return None
    lines, sampled = sum(head.count(b"\n") for head in heads), sum(map(len, heads))
    if not lines or any(size is None for size in sizes.values()):
        return None
    return Estimate(round(sum(size or 0 for size in sizes.values()) * lines / sampled))


def _head(path: Path) -> bytes:
    with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
        return file.read(SAMPLED_BYTES)


def _text_size(path: Path) -> int | None:
    """Return the size of the uncompressed text of a file in bytes, or None if it is unknown.

    The last four bytes of a gzip file store the uncompressed size modulo 2³².
    """
    size = path.stat().st_size
    if path.suffix.lower() == ".zst":
        return None
    if path.suffix.lower() != ".gz":
        return size
    with path.open("rb") as file:
        file.seek(-4, 2)
        unpacked = int.from_bytes(file.read(4), "little")
    # The stored size is not plausible if the file has several gzip members or more than 4 GB of text.
    return unpacked if size < unpacked < 2**31 else round(GZIP_RATIO * size)
