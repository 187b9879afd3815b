"""Estimate of the rows of a source, for the time left. Reads at most a few megabytes."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import suffix_of
from seqclf.system import progress
from seqclf.system.progress_line import Estimate

COUNTED = (".parquet", ".arrow", ".feather")  # files that know the number of their rows
LINES = (".csv", ".tsv", ".txt", ".tab", ".jsonl", ".ndjson", ".ts")  # text with about one row per line
SAMPLED_FILES = 4
SAMPLED_BYTES = 2**19  # of each sampled file
GZIP_RATIO = 3.0  # of text, where the end of a file does not tell


def estimate_rows(reader: SourceReader) -> int | None:
    """Estimate the number of rows of a source. None where it is not cheap, or where no progress is shown."""
    if not progress.is_shown() or not reader.paths or reader.source.query is not None:
        return None
    listing = reader.source.listing
    if listing is not None and listing.per_class and suffix_of(reader.paths[0]) not in COUNTED:
        return len(reader.paths)  # a text per file
    suffix = suffix_of(reader.paths[0])
    if suffix in COUNTED:
        return reader.count_rows()
    return estimate_lines(reader.paths) if suffix in LINES else None


def estimate_lines(paths: list[Path]) -> Estimate | None:
    """Estimate the lines of text files from their sizes and the lines at the beginning of the largest ones.

    None if a file has a compression whose size is not known, or cannot be read.
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
    """Return the bytes of a file once it is unpacked. Those of a gzip file are in its last four bytes, modulo 2³²."""
    size = path.stat().st_size
    if path.suffix.lower() == ".zst":
        return None
    if path.suffix.lower() != ".gz":
        return size
    with path.open("rb") as file:
        file.seek(-4, 2)
        unpacked = int.from_bytes(file.read(4), "little")
    # More than one member, or more than 4 GB.
    return unpacked if size < unpacked < 2**31 else round(GZIP_RATIO * size)
