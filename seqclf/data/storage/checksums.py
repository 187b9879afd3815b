"""Checksums of the files of a cache folder, so that damage is noticed before it is trained on.

Files are hashed in blocks as they are written. When a folder is opened, this much is read and compared again:

- always: the size of each file, every file of up to one block, and the files that opening reads anyway
- everything, if the folder holds up to `CHEAP` bytes (which takes a tenth of a second), or on request
- in a larger folder: each file that was touched since it was last verified (its `FileState` has changed), and a random
  sample of `SAMPLED` blocks of the others, drawn anew each time.

So a file that somebody writes to is noticed at once, and bits that the disk itself loses are noticed in time.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64, xxh3_64_hexdigest

from seqclf.data.reading.sources import file_state
from seqclf.data.storage.verified import one_at_a_time, trust, untrusted
from seqclf.system import progress

CHECKSUMS = "checksums.json"
BLOCK = 2**20
CHEAP = 256 * 2**20
SAMPLED = 64


class DamagedError(Exception):
    """Raised for a cache folder that does not hold what was written, and has to be built again."""


class Blocks(NamedTuple):
    """Size of a file in bytes, and the hash of each of its blocks."""

    size: int
    hashes: list[str]


class ChecksumFile:
    """A new file that is hashed as it is written. Has the methods that Arrow's writers need."""

    def __init__(self, path: Path):
        self.file = path.open("wb")
        self.size = 0
        self.hashes: list[str] = []
        self.block = xxh3_64()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        for start, stop in _bounds(self.size, len(view)):
            self.block.update(view[start:stop])
            if (self.size + stop) % BLOCK == 0:
                self._end_block()
        self.size += len(view)
        return self.file.write(view)

    def _end_block(self) -> None:
        self.hashes.append(self.block.hexdigest())
        self.block.reset()

    @property
    def closed(self) -> bool:
        return self.file.closed

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        if not self.file.closed:
            self.file.close()
            if self.size % BLOCK:
                self._end_block()

    def blocks(self) -> Blocks:
        return Blocks(self.size, self.hashes)


def _bounds(size: int, count: int) -> Iterable[tuple[int, int]]:
    """Cut `count` bytes that follow `size` others into half-open ranges, so that none crosses the edge of a block."""
    edges = [0, *range(-size % BLOCK or BLOCK, count, BLOCK), count]
    return [(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


def write_checked(path: Path, value: Any) -> None:
    """Write JSON together with its hash."""
    text = json.dumps(value)
    path.write_text(f'{{"hash": "{xxh3_64_hexdigest(text.encode())}", "content": {text}}}', encoding="utf-8")


def read_checked(path: Path) -> Any:
    """Read what `write_checked` wrote. Raises ValueError if the file is damaged, OSError if it is missing."""
    state = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict) or "content" not in state:
        raise ValueError(f"{path} is damaged")
    if state.get("hash") != xxh3_64_hexdigest(json.dumps(state["content"]).encode()):
        raise ValueError(f"{path} differs from its checksum")
    return state["content"]


def write_checksums(folder: Path, hashed: Mapping[str, Blocks]) -> None:
    """Record the checksums of every file of a finished folder.

    `hashed`: by path in `folder`, the files that were hashed as they were written. The others are read.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    blocks = {name: hashed[name] if name in hashed else _read(folder / name) for name in names}
    write_checked(folder / CHECKSUMS, blocks)
    trust(folder, {name: file_state(folder / name) for name in names}, CHECKSUMS)


def _read(path: Path) -> Blocks:
    size = path.stat().st_size
    return Blocks(size, [_hash_block(path, position) for position in range(-(-size // BLOCK))])


def _hash_block(path: Path, position: int) -> str:
    with path.open("rb", buffering=0) as file:
        file.seek(position * BLOCK)
        return xxh3_64_hexdigest(file.read(BLOCK))


def verify(folder: Path, full: bool, read_anyway: tuple[str, ...] = ()) -> None:
    """Raise DamagedError if a file differs from what was written, as far as the rules above look.

    `full`: read everything. `read_anyway`: names of files that are always verified, because they are used at once.
    """
    try:
        recorded = {name: Blocks(*entry) for name, entry in read_checked(folder / CHECKSUMS).items()}
        states = {name: file_state(folder / name) for name in recorded}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedError(str(error)) from None
    for name, blocks in recorded.items():
        if states[name].size != blocks.size:
            raise DamagedError(f"{folder / name} has {states[name].size} bytes instead of {blocks.size}")
    if sum(blocks.size for blocks in recorded.values()) <= CHEAP:
        _compare(folder, recorded, set(recorded))
    elif not untrusted(folder, states, CHECKSUMS):
        _compare(folder, recorded, set(recorded) if full else set(), read_anyway)
    else:
        with one_at_a_time(folder, CHECKSUMS):
            touched = untrusted(folder, states, CHECKSUMS)  # another process may have verified them meanwhile
            _compare(folder, recorded, set(recorded) if full else touched, read_anyway)
            if touched:
                trust(folder, states, CHECKSUMS)


def _compare(
    folder: Path, recorded: Mapping[str, Blocks], in_full: set[str], read_anyway: tuple[str, ...] = ()
) -> None:
    """Raise DamagedError if a block differs: every block of the files `in_full`, and a sample of the other blocks."""
    compared: list[tuple[str, int]] = []
    others: list[tuple[str, int]] = []
    for name, blocks in recorded.items():
        all_blocks = blocks.size <= BLOCK or name in in_full or Path(name).name in read_anyway
        (compared if all_blocks else others).extend((name, position) for position in range(len(blocks.hashes)))
    # Seeded by the system: other blocks each time, and the user's seeds draw the same numbers with and without this.
    compared += random.Random(os.urandom(8)).sample(others, min(SAMPLED, len(others)))
    for name, position in compared:
        progress.advance("MB", 1)  # BLOCK bytes
        if _hash_block(folder / name, position) != recorded[name].hashes[position]:
            raise DamagedError(f"{folder / name} differs from its checksum")
