"""Fingerprint of prepared data.

The data depends on files, options, third-party code and versions, and the fingerprint covers all of them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
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
from seqclf.data.storage.store import FORMAT
from seqclf.errors import InputError
from seqclf.system.version import __version__

NOT_CONTENT = ("cache_dir", "positive", "memory_limit", "verify_cache")  # options that do not change the prepared data
MAX_HASHED_FILES = 2000  # maximum number of Python files that are hashed at each start, in about 50 ms
LIBRARIES = (np, pa, duckdb, tokenizers)  # libraries of which a new version may parse or generate other data


def states_of(options: DataOptions, splits: Mapping[str, Source]) -> list[SourceState]:
    """Return the state of each source, and the state of each file that is named in the options of a field.

    `splits`: dict split → source.
    """
    states = [sources.source_state(source) for source in _all_sources(options, splits)]
    return states + [_option_file(path) for spec in (options.fields or {}).values() for path in _option_files(spec)]


def changed_file(before: list[SourceState], after: list[SourceState]) -> str | None:
    """Compare the states of files, and return the path of one file that was changed, added or deleted.

    Return "" if the options of a source changed, and None if nothing changed. Two states of a file are compared by
    size, modification time and inode. The time of the last inode change is not compared, because chmod and hard links
    of a backup change it too. A file with new content of the same size is therefore not found if its modification time
    is set back. The fingerprint of the next run covers the inode change time, so the next run prepares the data again.
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
    """Return 16 hexadecimal digits that identify the prepared data by its files, options, code and versions.

    If changes of a source cannot be detected, the digits are random. The prepared data of such a source is therefore
    never reused.
    """
    keys = {key: value for key, value in options.model_dump().items() if key not in NOT_CONTENT}
    all_sources = _all_sources(options, splits)
    nonce = os.urandom(8).hex() if any(map(sources.is_volatile, all_sources)) else None
    plugin_code = [*_format_code(all_sources, states), *_kind_code(options)]
    versions = [__version__, FORMAT, *(library.__version__ for library in LIBRARIES)]
    parts = [versions, keys, [asdict(state) for state in states], nonce, plugin_code]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _format_code(all_sources: list[Source], states: list[SourceState]) -> list[str | None]:
    """Hash the code of each third-party file format that reads a source."""
    files = [
        state.files[0].path
        for source, state in zip(all_sources, states, strict=False)  # further states belong to option files
        if state.files and sources.query_text(source) is None
    ]
    formats = [plugin_format(ending) for ending in sorted(set(map(sources.suffix_of, files)))]
    return [_hash_of_code([inspect.getmodule(type(used))]) for used in formats if used is not None]


def _option_files(spec: Any) -> list[str]:
    """Return the paths of the files that are named in the options of a field, such as files of word vectors."""
    if not isinstance(spec, Mapping):
        return []
    try:
        names = encoder_class(spec.get("kind")).file_options
    except InputError:  # the field kind is unknown, which is reported later when the data is read
        return []
    return [spec[name] for name in names if isinstance(spec.get(name), str)]


def _option_file(path: str) -> SourceState:
    file = Path(path).expanduser()
    return SourceState((path,), (FileEntry(path, sources.file_state(file)),) if file.is_file() else ())


def _kind_code(options: DataOptions) -> list[str | None]:
    """Hash the code of each third-party field kind in `data.fields`."""
    named = [spec.get("kind") if isinstance(spec, Mapping) else spec for spec in (options.fields or {}).values()]
    plugins = {kind for kind in named if isinstance(kind, str) and kind not in built_in_kinds()}
    known = plugins.intersection(kind_names()) if plugins else plugins
    return [_hash_of_code([inspect.getmodule(encoder_class(kind))]) for kind in sorted(known)]


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """Hash the code of the generator function."""
    function = locate_generator(generator)
    return _hash_of_code([inspect.getmodule(function), sys.modules.get(str(generator["_target_"]).rpartition(".")[0])])


def _hash_of_code(modules: Iterable[ModuleType | None]) -> str | None:
    """Hash all Python files of the packages that contain `modules`.

    For a module that is in no package, hash only the file of the module. Other packages that the code imports are not
    hashed. If there are more than MAX_HASHED_FILES files, their sizes and times are hashed instead of their content.
    """
    files = sorted({file for module in modules if module is not None for file in _code_files(module)})
    digest = hashlib.sha256()
    for file in files:
        path, name = Path(file.path), file.name
        state = path.read_bytes() if len(files) <= MAX_HASHED_FILES else repr(sources.file_state(path)).encode()
        digest.update(f"{name} {len(state)} ".encode() + state)
    return digest.hexdigest() if files else None


class CodeFile(NamedTuple):
    """A Python file. `name`: path of the file inside its package.

    The hash covers `name`, because the name does not depend on the install folder. `path`: path of the file on disk.
    """

    name: str
    path: str


def _code_files(module: ModuleType) -> list[CodeFile]:
    """Return the Python files of the top-level package that contains a module.

    For a module of seqclf, return only the Python files in the module's folder.
    """
    path = getattr(module, "__file__", None)
    if path is None or not Path(path).is_file():
        return []
    file, parts = Path(path), module.__name__.split(".")
    depth = len(parts) - (file.name != "__init__.py")  # number of packages that contain the file, one inside another
    if depth == 0:
        return [CodeFile(file.name, str(file))]
    top = file.parent if parts[0] == "seqclf" else file.parents[depth - 1]
    package_files = [CodeFile(str(path.relative_to(top)), str(path)) for path in _python_files(top, file)]
    return package_files or [CodeFile(file.name, str(file))]


def _python_files(top: Path, file: Path) -> Iterator[Path]:
    """Yield the Python files in the folder `top` and in its sub-folders.

    Sub-folders without Python files are skipped.
    """
    for parent, folders, names in os.walk(top):
        code = [Path(parent, name) for name in names if name.endswith(".py")]
        yield from code
        # A folder without Python files may hold millions of data files. A folder without Python files is searched only
        # if `file` is in one of its sub-folders.
        searched = code or Path(parent) == top or Path(parent) in file.parents
        folders[:] = [name for name in folders if searched and name.isidentifier() and name != "__pycache__"]
