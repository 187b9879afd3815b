"""Mutations of the bytes and the text of written files. Mutations of columns are in columns.py."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from fuzzing.columns import HUGE, TABLE, Random, pick, positions
from fuzzing.files import Base

NAMES = [b"id", b"label", b"tokens", b"amount", b"time", b"element", b"item"]
LONG = 2**24 + 10  # characters, more than any line of text that is read
RUNS = ["\x00", "\x1b[2J", "\r", "\u2028", "\x1a", "\ufeff", "\ufffd", "\x7f", "\t", ",", ";", "|", "\\", "'", "\ud800"]


def truncated(random: Random, data: bytes) -> bytes:
    return data[: int(random.integers(len(data)))] if data else data


def flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for position in positions(random, len(data), 6):
        changed[position] ^= 1 << int(random.integers(8))
    return bytes(changed)


def noise(random: Random, data: bytes) -> bytes:
    """Insert random bytes, write them over others, or replace the file by them."""
    run = random.bytes(int(random.integers(1, 200)))
    position, kind = int(random.integers(len(data) + 1)), int(random.integers(5))
    return run if kind == 4 else data[:position] + run + data[position + (len(run) if kind % 2 else 0) :]


def zeroed(random: Random, data: bytes) -> bytes:
    position, size = int(random.integers(len(data) + 1)), int(random.integers(1, 64))
    return data[:position] + b"\x00" * size + data[position + size :]


def other_encoding(random: Random, data: bytes) -> bytes:
    """Insert bytes of another encoding, or put a byte order mark first."""
    position = int(random.integers(len(data) + 1))
    run = pick(random, [b"\xe9", b"\xff\xfe", b"\xc3", "é€".encode(), "né".encode("utf-16-le"), b"\xed\xa0\x80"])
    mark = pick(random, [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff"])
    return mark + data if random.integers(3) == 0 else data[:position] + run + data[position:]


def undecodable_name(random: Random, data: bytes) -> bytes:
    """Put a byte that is not UTF-8 into every occurrence of the name of a column or of a value in a list."""
    name = pick(random, [name for name in NAMES if name in data] or [b"x"])
    return data.replace(name, name[:-1] + pick(random, [b"\xff", b"\x80", b"\xc3"]))


def empty(random: Random, data: bytes) -> bytes:
    return pick(random, [b"", b"\n", b" ", b"\xef\xbb\xbf", b"\x00"])


def control(random: Random, text: str) -> str:
    for position in positions(random, len(text) + 1, 3):
        text = text[:position] + pick(random, RUNS) * int(random.integers(1, 3)) + text[position:]
    return text


def deleted_lines(random: Random, text: str) -> str:
    text_lines = text.split("\n")
    for position in positions(random, len(text_lines), 4):
        text_lines[position : position + 1] = [""] if random.integers(4) == 0 else []
    return "\n".join(text_lines)


def repeated_lines(random: Random, text: str) -> str:
    text_lines = text.split("\n")
    for position in positions(random, len(text_lines), 4):
        text_lines.insert(int(random.integers(len(text_lines) + 1)), text_lines[min(position, len(text_lines) - 1)])
    return "\n".join(text_lines)


def marks(random: Random, text: str) -> str:
    """Insert or remove quotes and brackets."""
    for position in positions(random, len(text) + 1, 3):
        mark = pick(random, ['"', '""', "[", "]", "[[", "{", "}", "(", ")", "'"])
        removed = random.integers(4) == 0
        text = text.replace(mark, "", 1) if removed else text[:position] + mark + text[position:]
    return text


def huge_line(random: Random, text: str) -> str:
    position = int(random.integers(len(text) + 1))
    mark = pick(random, ["x", "1,", "[", '"', "1 ", "\n", "\r\n"])
    size = pick(random, [HUGE // 2, HUGE // 2, LONG])
    return text[:position] + mark * (HUGE // 200 if mark.isspace() else size) + text[position:]


def line_ends(random: Random, text: str) -> str:
    ends = pick(random, [["\r\n"], ["\r"], ["\n", "\r\n"], ["\n", "\r"], ["\n\n", "\n"], ["\n", "\n \n"]])
    return "".join(line + pick(random, ends) for line in text.split("\n"))


def header_only(random: Random, text: str) -> str:
    return text.split("\n")[0] + pick(random, ["", "\n", "\r\n"])


BYTES = {f.__name__: f for f in (truncated, flipped, noise, zeroed, other_encoding, empty, undecodable_name)}
TEXT = {
    f.__name__: f
    for f in (control, deleted_lines, repeated_lines, marks, huge_line, line_ends, header_only)
}  # fmt: skip


FATAL = ("renamed_column", "removed_column", "swapped_columns", "missing_column", "no_rows", "empty", "header_only")


def applicable(base: Base) -> list[str]:
    """Return the names of the mutations that apply to a file.

    Mutations that always make a file unreadable occur once and the others four times, so that most cases test more than
    the first check.
    """
    columnar = base.form == "columnar"
    table = [name for name in TABLE if name != "other_type" or columnar]
    every = [*table, *BYTES, *(["other_type"] * 4 if columnar else TEXT)]
    return [*every, *[name for name in every if name not in FATAL] * 3]


def change_file(random: Random, name: str, path: Path, encoding: str) -> None:
    """Mutate one written file. A compressed file is mutated before or after compression."""
    data = path.read_bytes()
    decompressed = path.suffix == ".gz" and (name in TEXT or random.integers(2) == 0)
    if decompressed:
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            decompressed = False
    if name in BYTES:
        data = BYTES[name](random, data)
    else:
        text = TEXT[name](random, data.decode(encoding, "surrogateescape" if encoding != "utf-16" else "replace"))
        handler = {"utf-8": "surrogateescape", "latin-1": "replace", "utf-16": "surrogatepass"}[encoding]
        data = text.replace("\ud800", "\udcff").encode(encoding, handler)
    path.write_bytes(gzip.compress(data) if decompressed else data)
