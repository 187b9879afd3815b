"""Checksums of the files in a cache folder. The checksums show before training whether data is damaged.

Files are hashed while they are written. When a folder is opened, the size and the modification time of each file are
compared with the recorded values. In a folder of up to `SMALL` bytes, all files are also read and their hashes are
compared, which takes a tenth of a second. In a larger folder, a file is read only if its modification time has changed.
If the user requests it, all files are read in any folder. A file that another program has changed is therefore always
detected. Bits of a large folder that the disk has lost are detected only if the user requests it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64, xxh3_64_hexdigest

from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace

CHECKSUMS = "checksums.json"
MEGABYTE = 2**20
SMALL = 256 * MEGABYTE


class DamagedError(Exception):
    """Raised if a file of a cache folder has changed since it was written. The folder must be built again."""


class FileRecord(NamedTuple):
    """Size of a file in bytes, its modification time in nanoseconds, and the hash of its content."""

    size: int
    modified_ns: int
    digest: str


class ChecksumFile(io.BufferedWriter):
    """A new file whose content is hashed while it is written."""

    def __init__(self, path: Path):
        super().__init__(io.FileIO(path, "wb"))
        self.hash = xxh3_64()

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return super().write(data)


def write_checked(path: Path, value: Any) -> None:
    """Write a value as JSON, together with the hash of the JSON text."""
    text = json.dumps(value)
    path.write_text(f'{{"hash": "{xxh3_64_hexdigest(text.encode())}", "content": {text}}}', encoding="utf-8")


def read_checked(path: Path) -> Any:
    """Read a value written by `write_checked`.

    Raises ValueError if the file is damaged, and OSError if the file is missing.
    """
    state = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(state, dict) or "content" not in state:
        raise ValueError(f"{path} is damaged")
    if state.get("hash") != xxh3_64_hexdigest(json.dumps(state["content"]).encode()):
        raise ValueError(f"{path} differs from its checksum")
    return state["content"]


def write_checksums(folder: Path, hashed: Mapping[str, str]) -> None:
    """Write the checksum of every file in a finished folder to the file CHECKSUMS.

    `hashed`: dict path of a file in `folder` → hash that was computed while the file was written. A file that is not in
    `hashed` is read to compute its hash.
    """
    records = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, status = path.relative_to(folder).as_posix(), path.stat()
        records[name] = FileRecord(status.st_size, status.st_mtime_ns, hashed.get(name) or _digest(path))
    write_checked(folder / CHECKSUMS, records)


def _digest(path: Path) -> str:
    digest = xxh3_64()
    with path.open("rb", buffering=0) as file:
        while block := file.read(MEGABYTE):
            digest.update(block)
            progress.advance("MB", len(block) / MEGABYTE)
    return digest.hexdigest()


def verify(folder: Path, full: bool) -> None:
    """Raise DamagedError if the size or the hash of a file in `folder` differs from the recorded value.

    `full`: True to read all files. If `full` is False, the size of the folder and the modification times decide which
    files are read (see the docstring of this module).
    """
    try:
        recorded = {name: FileRecord(*entry) for name, entry in read_checked(folder / CHECKSUMS).items()}
        present = {name: (folder / name).stat() for name in recorded}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedError(str(error)) from None
    full = full or sum(record.size for record in recorded.values()) <= SMALL
    touched = {}
    for name, record in recorded.items():
        size, modified_ns = present[name].st_size, present[name].st_mtime_ns
        if size != record.size:
            raise DamagedError(f"{folder / name} has {size} bytes instead of {record.size}")
        if modified_ns != record.modified_ns:
            touched[name] = record._replace(modified_ns=modified_ns)
        if (full or name in touched) and _digest(folder / name) != record.digest:
            raise DamagedError(f"{folder / name} differs from its checksum")
    # The files of a copied folder have new modification times. The new times are recorded, so that the files of the
    # copied folder are not read each time. A read-only folder cannot record the new times, so its files are read each
    # time.
    with suppress(OSError):
        if touched:
            with atomic_replace(folder / CHECKSUMS) as unfinished:
                write_checked(unfinished, recorded | touched)
