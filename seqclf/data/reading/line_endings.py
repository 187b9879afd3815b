r"""Text files whose lines end in more than one way are read from a copy in which each ends with `\n`.

DuckDB reads one way of ending a line at a time; told to be lenient it drops surplus cells in silence.
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

COPIES = "seqclf-lines-"  # how the name of the folder of copies begins
COPY = rf"[^\s'\"]*{COPIES}[0-9a-f]+"  # what comes before the path of the file; DuckDB reads it too
BLOCK = 2**20


def new_folder(parent: Path) -> Path:
    """Where copies may be made; nothing is there until one is needed."""
    return parent.absolute() / f"{COPIES}{uuid4().hex}"


def uniform(paths: Sequence[Path], folder: Path) -> list[Path]:
    """The files, each with lines of mixed ends as its copy: at its own absolute path, but below `folder`."""
    return [_copied(path, folder) if mixed(path, path.stat().st_mtime) else path for path in paths]


def original(text: str) -> str:
    """The text with the names of copies turned into those of the files they were made of."""
    return re.sub(COPY, "", text)


@lru_cache(maxsize=64)
def mixed(path: Path, state: float) -> bool:
    """Whether lines end in more than one way. `state`: of the file, to remember the answer by."""
    unix = windows = old = 0
    last = b""
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK):
            both = block.count(b"\r\n") + (last == b"\r" and block[:1] == b"\n")
            windows += both
            unix += block.count(b"\n") - both
            old += block.count(b"\r") - both
            last = block[-1:]
    return (unix > 0) + (windows > 0) + (old > 0) > 1


def _copied(path: Path, folder: Path) -> Path:
    copy = Path(f"{folder}{path.absolute()}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    source: Any = pa.input_stream(str(path), compression="detect")
    target: Any = pa.output_stream(str(copy), compression="detect")
    with (
        io.TextIOWrapper(source, "latin-1", newline=None) as lines,  # no byte is changed but those of line ends
        io.TextIOWrapper(target, "latin-1", newline="") as uniform_lines,
    ):
        shutil.copyfileobj(lines, uniform_lines, BLOCK)
    return copy
