"""What prepared data depends on: files, options, code and libraries; another fingerprint, and it is made anew."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import tokenizers

from seqclf import __version__
from seqclf.config.instantiate import locate_generator
from seqclf.data.options import DataOptions
from seqclf.data.reading import sources
from seqclf.data.reading.sources import Source

DATA = Path(__file__).parents[1]
GENERATORS = DATA / "builtin"  # each generator has a hash of its own
NOT_CONTENT = ("cache_dir", "positive", "memory_limit", "verify_cache")  # options that change nothing in the dataset
MOST_CODE = 2000  # files of a generator's package that are read at each start, some 50 ms
LIBRARIES = (np, pa, duckdb, tokenizers)  # whose versions may change what is read and drawn


def states_of(options: DataOptions, given: Mapping[str, Source]) -> list[dict[str, Any]]:
    """The state of every file that the data is read from, by source."""
    states = [sources.source_state(source) for source in _every(options, given)]
    return states + [_vector_file(spec["vectors"]) for spec in (options.fields or {}).values() if _has_vectors(spec)]


def changed_file(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> str | None:
    """A file of `states_of` that holds something else than before, is new or is gone; "" if a query or a list changed.

    Size, time of modification and inode are compared, not the time of the inode's change: that is another after a
    hard link (as of a backup) or a chmod, too. So the one change that is missed is one written into the same file, in
    the same size, whose time is set back; the next run prepares the data anew even then.
    """
    if [source["options"] for source in before] != [source["options"] for source in after]:
        return ""
    return min((path for path, *_ in _contents(before) ^ _contents(after)), default=None)


def _contents(states: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    files = [entry for source in states for entry in source["files"]]
    return {(path, size, modified, inode) for path, (size, modified, _, inode) in files}


def _every(options: DataOptions, given: Mapping[str, Source]) -> list[Source]:
    labels = options.source("labels")
    return [*given.values(), *([labels] if labels is not None else [])]


def fingerprint(options: DataOptions, given: Mapping[str, Source], states: list[dict[str, Any]]) -> str:
    keys = {key: value for key, value in options.model_dump().items() if key not in NOT_CONTENT}
    chance = os.urandom(8).hex() if any(sources.is_volatile(source) for source in _every(options, given)) else None
    text = json.dumps([__version__, code_digest(), keys, states, chance], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code_digest() -> str:
    """Of the source files of this package (but not of its generators), and of the versions of the libraries it uses.

    Any change of the code makes cached data stale; a number that people have to raise by hand would be forgotten. Takes
    a few milliseconds.
    """
    digest = hashlib.sha256(repr([library.__version__ for library in LIBRARIES]).encode())
    for path in sorted(DATA.rglob("*.py")):
        if GENERATORS not in path.parents:
            digest.update(str(path.relative_to(DATA)).encode() + path.read_bytes())
    return digest.hexdigest()


def _has_vectors(spec: Any) -> bool:
    return isinstance(spec, Mapping) and isinstance(spec.get("vectors"), str)


def _vector_file(path: str) -> dict[str, Any]:
    file = Path(path).expanduser()
    return {"options": [path], "files": [[path, sources.file_state(file)]] if file.is_file() else []}


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """A hash of the code of a generator: all Python files of its package, or its file where it is in none.

    What it imports from elsewhere does not count. Of a package of more than `MOST_CODE` files, their states do.
    """
    made = locate_generator(generator)
    modules = {inspect.getmodule(made), sys.modules.get(str(generator["_target_"]).rpartition(".")[0])}
    files = sorted({file for module in modules if module is not None for file in _code_files(module)})
    digest = hashlib.sha256()
    for file in files:
        path, name = Path(file.path), file.name
        state = path.read_bytes() if len(files) <= MOST_CODE else repr(sources.file_state(path)).encode()
        digest.update(f"{name} {len(state)} ".encode() + state)
    return digest.hexdigest() if files else None


class CodeFile(NamedTuple):
    """A Python file. `name`: its path in its package, so that the hash does not depend on where that is installed."""

    name: str
    path: str


def _code_files(module: ModuleType) -> list[CodeFile]:
    """The Python files of a module's top-level package; of this package only those beside the module."""
    path = getattr(module, "__file__", None)
    if path is None or not Path(path).is_file():
        return []
    file, parts = Path(path), module.__name__.split(".")
    depth = len(parts) - (file.name != "__init__.py")  # packages above the file
    if depth == 0:
        return [CodeFile(file.name, str(file))]
    top = file.parent if parts[0] == "seqclf" else file.parents[depth - 1]
    inside = [CodeFile(str(below.relative_to(top)), str(below)) for below in _below(top, file)]
    return inside or [CodeFile(file.name, str(file))]


def _below(top: Path, file: Path) -> Iterator[Path]:
    """Python files below `top`. A folder without any is not searched (it may hold millions of data files), unless
    `file` is below it."""
    for above, folders, names in os.walk(top):
        code = [Path(above, name) for name in names if name.endswith(".py")]
        yield from code
        searched = code or Path(above) == top or Path(above) in file.parents
        folders[:] = [name for name in folders if searched and name.isidentifier() and name != "__pycache__"]
