"""Fingerprint of prepared data.

The data depends on files, options and versions, and the fingerprint covers all of them.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import tokenizers

from seqclf.config.targets import locate_generator
from seqclf.data.encoding.registry import encoder_class
from seqclf.data.options import DataOptions
from seqclf.data.reading import sources
from seqclf.data.reading.sources import Source, SourceState
from seqclf.data.storage.store import FORMAT
from seqclf.errors import InputError
from seqclf.system.version import __version__

NOT_CONTENT = ("cache_dir", "positive", "memory_limit")  # options that do not change the prepared data
LIBRARIES = (np, pa, duckdb, tokenizers)  # libraries of which a new version may parse or generate other data


def states_of(options: DataOptions, splits: Mapping[str, Source]) -> list[SourceState]:
    """Return the state of each source, and the state of each file that is named in the options of a field.

    `splits`: dict split → source.
    """
    labels = options.source("labels")
    all_sources = [*splits.values(), *([labels] if labels is not None else [])]
    states = [sources.source_state(source) for source in all_sources]
    files = [path for spec in (options.fields or {}).values() for path in _option_files(spec)]
    if options.encoders is not None:
        files += sorted(map(str, Path(options.encoders).expanduser().glob("*.json")))
    return states + list(map(_option_file, files))


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
    return {(file.path, file.size, file.modified_ns, file.inode) for source in states for file in source.files}


def fingerprint(options: DataOptions, states: list[SourceState]) -> str:
    """Return 16 hexadecimal digits that identify the prepared data by its files, options and versions."""
    keys = {key: value for key, value in options.model_dump().items() if key not in NOT_CONTENT}
    versions = [__version__, FORMAT, *(library.__version__ for library in LIBRARIES)]
    parts = [versions, keys, states]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


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
    return SourceState((path,), (sources.file_state(file, path),) if file.is_file() else ())


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """Hash the source of the generator function and of the module that `_target_` names.

    Other modules that these import are not hashed. None if there is no source, as of a compiled function.
    """
    function = inspect.unwrap(locate_generator(generator))
    module = sys.modules.get(str(generator["_target_"]).rpartition(".")[0])
    sources_of = []
    for part in (function, module):
        with suppress(OSError, TypeError):  # a cell of a notebook has a function with a source, and no module
            sources_of.append(inspect.getsource(part))  # type: ignore[arg-type]
    return hashlib.sha256("\0".join(sources_of).encode()).hexdigest() if sources_of else None
