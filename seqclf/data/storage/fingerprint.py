"""Fingerprint of prepared data: the files, options, code and library versions that it depends on."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import tokenizers

from seqclf.config.targets import locate_generator
from seqclf.data.encoding.registry import built_in_kinds, encoder_class, kind_names
from seqclf.data.options import DataOptions
from seqclf.data.reading import sources
from seqclf.data.reading.format_lookup import plugin_format
from seqclf.data.reading.sources import FileEntry, Source, SourceState
from seqclf.errors import InputError
from seqclf.system.version import __version__

DATA = Path(__file__).parents[1]
GENERATORS = DATA / "builtin"  # left out, because `generator_code` hashes each generator
NOT_CONTENT = ("cache_dir", "positive", "memory_limit", "verify_cache")  # options that change nothing in the dataset
MAX_HASHED_FILES = 2000  # of a generator's package; they are read at each start, which takes some 50 ms
LIBRARIES = (np, pa, duckdb, tokenizers)  # their versions may change what is read and drawn


def states_of(options: DataOptions, splits: Mapping[str, Source]) -> list[SourceState]:
    """State of every file that the data is read from. `splits`: the sources of the splits, by name."""
    states = [sources.source_state(source) for source in _all_sources(options, splits)]
    return states + [_option_file(path) for spec in (options.fields or {}).values() for path in _option_files(spec)]


def changed_file(before: list[SourceState], after: list[SourceState]) -> str | None:
    """Path of a file that has changed, is new or is gone; "" if a query or a list of files changed. Else None.

    Size, time of modification and inode are compared. The time of the inode's change is not, because a chmod, or a hard
    link that a backup makes, changes it too. So one change is missed: other content of the same size, written into the
    same file, whose time of modification is set back. Even then the next run prepares the data anew.
    """
    if [source.options for source in before] != [source.options for source in after]:
        return ""
    return min((path for path, *_ in _contents(before) ^ _contents(after)), default=None)


def _contents(states: list[SourceState]) -> set[tuple[str, int, int, int]]:
    entries = [entry for source in states for entry in source.files]
    return {(entry.path, entry.state.size, entry.state.modified_ns, entry.state.inode) for entry in entries}


def _all_sources(options: DataOptions, splits: Mapping[str, Source]) -> list[Source]:
    labels = options.source("labels")
    return [*splits.values(), *([labels] if labels is not None else [])]


def fingerprint(options: DataOptions, splits: Mapping[str, Source], states: list[SourceState]) -> str:
    """16 hexadecimal digits that change with everything the prepared data depends on.

    They are random if the rows of a source may change without a trace, so that its data is never reused.
    """
    keys = {key: value for key, value in options.model_dump().items() if key not in NOT_CONTENT}
    all_sources = _all_sources(options, splits)
    nonce = os.urandom(8).hex() if any(map(sources.is_volatile, all_sources)) else None
    plugin_code = [*_format_code(all_sources, states), *_kind_code(options)]
    parts = [__version__, code_digest(), keys, [asdict(state) for state in states], nonce, plugin_code]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


@cache
def code_digest() -> str:
    """Hash of the source files of seqclf.data (without its generators) and of the versions of the libraries it uses.

    Any change of the code makes cached data stale. A version number would have to be raised by hand, and people forget.
    Takes a few milliseconds.
    """
    digest = hashlib.sha256(repr([library.__version__ for library in LIBRARIES]).encode())
    for path in sorted(DATA.rglob("*.py")):
        if GENERATORS not in path.parents:
            digest.update(str(path.relative_to(DATA)).encode() + path.read_bytes())
    return digest.hexdigest()


def _format_code(all_sources: list[Source], states: list[SourceState]) -> list[str | None]:
    """Hash of the code of each format of another package that a source is read by."""
    files = [
        state.files[0].path
        for source, state in zip(all_sources, states, strict=False)  # vector files follow
        if state.files and sources.query_text(source) is None
    ]
    formats = [plugin_format(ending) for ending in sorted(set(map(sources.suffix_of, files)))]
    return [_hash_of_code([inspect.getmodule(type(used))]) for used in formats if used is not None]


def _option_files(spec: Any) -> list[str]:
    """Paths of the files that the options of a field name, such as word vectors."""
    if not isinstance(spec, Mapping):
        return []
    try:
        names = encoder_class(spec.get("kind")).file_options
    except InputError:  # an unknown kind, which is refused once the data is read
        return []
    return [spec[name] for name in names if isinstance(spec.get(name), str)]


def _option_file(path: str) -> SourceState:
    file = Path(path).expanduser()
    return SourceState((path,), (FileEntry(path, sources.file_state(file)),) if file.is_file() else ())


def _kind_code(options: DataOptions) -> list[str | None]:
    """Hash of the code of each field kind of another package."""
    named = [spec.get("kind") if isinstance(spec, Mapping) else spec for spec in (options.fields or {}).values()]
    plugins = {kind for kind in named if isinstance(kind, str) and kind not in built_in_kinds()}
    known = plugins.intersection(kind_names()) if plugins else plugins
    return [_hash_of_code([inspect.getmodule(encoder_class(kind))]) for kind in sorted(known)]


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """Hash of the code of a generator."""
    function = locate_generator(generator)
    return _hash_of_code([inspect.getmodule(function), sys.modules.get(str(generator["_target_"]).rpartition(".")[0])])


def _hash_of_code(modules: Iterable[ModuleType | None]) -> str | None:
    """Hash of all Python files of the modules' packages, or of their files if those are in no package.

    Other packages that they import do not count. For packages of more than MAX_HASHED_FILES files, their states are
    hashed instead of their content.
    """
    files = sorted({file for module in modules if module is not None for file in _code_files(module)})
    digest = hashlib.sha256()
    for file in files:
        path, name = Path(file.path), file.name
        state = path.read_bytes() if len(files) <= MAX_HASHED_FILES else repr(sources.file_state(path)).encode()
        digest.update(f"{name} {len(state)} ".encode() + state)
    return digest.hexdigest() if files else None


class CodeFile(NamedTuple):
    """A Python file. `name`: its path in the package, so that the hash does not depend on where it is installed."""

    name: str
    path: str


def _code_files(module: ModuleType) -> list[CodeFile]:
    """The Python files of a module's top-level package. For a module of seqclf, only those of its folder."""
    path = getattr(module, "__file__", None)
    if path is None or not Path(path).is_file():
        return []
    file, parts = Path(path), module.__name__.split(".")
    depth = len(parts) - (file.name != "__init__.py")  # packages above the file
    if depth == 0:
        return [CodeFile(file.name, str(file))]
    top = file.parent if parts[0] == "seqclf" else file.parents[depth - 1]
    package_files = [CodeFile(str(path.relative_to(top)), str(path)) for path in _python_files(top, file)]
    return package_files or [CodeFile(file.name, str(file))]


def _python_files(top: Path, file: Path) -> Iterator[Path]:
    """Python files below `top`."""
    for parent, folders, names in os.walk(top):
        code = [Path(parent, name) for name in names if name.endswith(".py")]
        yield from code
        # A folder without Python files may hold millions of data files. It is searched only on the way to `file`.
        searched = code or Path(parent) == top or Path(parent) in file.parents
        folders[:] = [name for name in folders if searched and name.isidentifier() and name != "__pycache__"]
