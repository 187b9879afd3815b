r"""Line endings: a text file that mixes them is read from a copy in which every line ends with `\n`.

DuckDB reads a file with one kind of line ending. In its lenient mode it would take several, but drop surplus cells
silently.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

COPIES = "seqclf-lines-"  # beginning of the name of a folder of copies
COPY = rf"[^\s'\"]*{COPIES}[0-9a-f]+"  # before the path of the original; must be a regular expression for DuckDB too
BLOCK = 2**20


def new_folder(parent: Path) -> Path:
    """Path for a folder of copies. It is created with the first copy."""
    return parent.absolute() / f"{COPIES}{uuid4().hex}"


def uniform(paths: Sequence[Path], folder: Path) -> list[Path]:
    """Replace files that mix line endings by copies: at the absolute path of the original, but below `folder`."""
    return [_copied(path, folder) if is_mixed(path, path.stat().st_mtime) else path for path in paths]


def original(text: str) -> str:
    """Replace the paths of copies in a text by those of their originals."""
    return re.sub(COPY, "", text)


@lru_cache(maxsize=64)
def is_mixed(path: Path, state: float) -> bool:
    """Check whether lines end in more than one way. `state`: time of change, so that a file is read only once."""
    unix = windows = old_mac = 0
    last_byte = b""
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            # A pair may be cut in two by the end of a block.
            pairs = block.count(b"\r\n") + (last_byte == b"\r" and block[:1] == b"\n")
            windows += pairs
            unix += block.count(b"\n") - pairs
            old_mac += block.count(b"\r") - pairs
            last_byte = block[-1:]
    return (unix > 0) + (windows > 0) + (old_mac > 0) > 1


def _copied(path: Path, folder: Path) -> Path:
    copy = Path(f"{folder}{path.absolute()}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    source: Any = pa.input_stream(str(path), compression="detect")
    target: Any = pa.output_stream(str(copy), compression="detect")
    with (
        io.TextIOWrapper(source, "latin-1", newline=None) as lines,  # latin-1 changes no byte, whatever the encoding
        io.TextIOWrapper(target, "latin-1", newline="") as uniform_lines,
    ):
        shutil.copyfileobj(lines, uniform_lines, BLOCK)
    return copy
