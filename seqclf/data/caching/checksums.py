"""Checksums of the files of a cache folder, so that damage is noticed before it is trained on.

Files are hashed in blocks as they are written. How much is read again when a folder is opened:

- Every size, and every file of up to a block, always. So are the files that opening reads anyway.
- All of it, if the folder holds up to `CHEAP` bytes (a tenth of a second), or on request.
- Of a larger folder: each file that was touched since it was last verified (its size, its time of change or its inode
  is another; see `trusted_states`), and of the others a random sample of `SAMPLED` blocks, other ones each time. So
  whatever writes to a file is noticed at once; bits that the disk itself loses, in time.
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

from seqclf.data.caching.verified import one_at_a_time, trust, untrusted
from seqclf.data.reading.sources import file_state

CHECKSUMS = "checksums.json"
BLOCK = 2**20
CHEAP = 256 * 2**20
SAMPLED = 64


class DamagedError(Exception):
    """A cache folder that does not hold what was written; it has to be made again."""


class Blocks(NamedTuple):
    """`size` of a file in bytes, and the hash of each of its blocks."""

    size: int
    hashes: list[str]


class ChecksumFile:
    """A new file that is hashed as it is written."""

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
    """Where `count` bytes that follow `size` others have to be cut so that no part crosses a block."""
    edges = [0, *range(-size % BLOCK or BLOCK, count, BLOCK), count]
    return [(start, stop) for start, stop in itertools.pairwise(edges) if stop > start]


def write_checked(path: Path, value: Any) -> None:
    """Write JSON with a hash of itself."""
    text = json.dumps(value)
    path.write_text(f'{{"hash": "{xxh3_64_hexdigest(text.encode())}", "content": {text}}}', encoding="utf-8")


def read_checked(path: Path) -> Any:
    """The JSON value that `write_checked` wrote. Raises ValueError if the file is damaged, OSError if there is none."""
    state = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict) or "content" not in state:
        raise ValueError(f"{path} is damaged")
    if state.get("hash") != xxh3_64_hexdigest(json.dumps(state["content"]).encode()):
        raise ValueError(f"{path} differs from its checksum")
    return state["content"]


def write_checksums(folder: Path, known: Mapping[str, Blocks]) -> None:
    """Record every file of a finished folder. `known`: those hashed as they were written, by relative path."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    blocks = {name: known[name] if name in known else _read(folder / name) for name in names}
    write_checked(folder / CHECKSUMS, blocks)
    trust(folder, {name: file_state(folder / name) for name in names}, CHECKSUMS)


def _read(path: Path) -> Blocks:
    size = path.stat().st_size
    return Blocks(size, [_hash_block(path, place) for place in range(-(-size // BLOCK))])


def _hash_block(path: Path, place: int) -> str:
    with path.open("rb", buffering=0) as file:
        file.seek(place * BLOCK)
        return xxh3_64_hexdigest(file.read(BLOCK))


def verify(folder: Path, full: bool, read_anyway: tuple[str, ...] = ()) -> None:
    """Raise DamagedError if a file differs from what was written, as far as the module's rules look.

    `full`: read everything. `read_anyway`: names of files that are to be used at once and so are always verified.
    """
    try:
        known = {name: Blocks(*entry) for name, entry in read_checked(folder / CHECKSUMS).items()}
        states = {name: file_state(folder / name) for name in known}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedError(str(error)) from None
    for name, blocks in known.items():
        if states[name][0] != blocks.size:
            raise DamagedError(f"{folder / name} has {states[name][0]} bytes instead of {blocks.size}")
    if sum(blocks.size for blocks in known.values()) <= CHEAP:
        _compare(folder, known, set(known))
    elif not untrusted(folder, states, CHECKSUMS):
        _compare(folder, known, set(known) if full else set(), read_anyway)
    else:
        with one_at_a_time(folder, CHECKSUMS):
            touched = untrusted(folder, states, CHECKSUMS)  # another process may have verified them meanwhile
            _compare(folder, known, set(known) if full else touched, read_anyway)
            if touched:
                trust(folder, states, CHECKSUMS)


def _compare(folder: Path, known: Mapping[str, Blocks], whole: set[str], read_anyway: tuple[str, ...] = ()) -> None:
    """Raise DamagedError if a block differs: of all blocks of the files `whole`, and a sample of those of others."""
    chosen: list[tuple[str, int]] = []
    rest: list[tuple[str, int]] = []
    for name, blocks in known.items():
        all_of_it = blocks.size <= BLOCK or name in whole or Path(name).name in read_anyway
        (chosen if all_of_it else rest).extend((name, place) for place in range(len(blocks.hashes)))
    # Seeded by the system: not the same blocks each time, and no draw of anyone else's generator.
    chosen += random.Random(os.urandom(8)).sample(rest, min(SAMPLED, len(rest)))
    for name, place in chosen:
        if _hash_block(folder / name, place) != known[name].hashes[place]:
            raise DamagedError(f"{folder / name} differs from its checksum")
