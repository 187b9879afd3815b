"""Fingerprint of prepared data, which covers the files, options and versions that the data depends on."""

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

from seqclf.config.build import locate_generator
from seqclf.data.encoding.registry import encoder_class
from seqclf.data.reading import sources
from seqclf.data.reading.sources import Source, SourceState, source_of
from seqclf.data.storage.store import FORMAT
from seqclf.errors import InputError
from seqclf.settings.data import DataOptions
from seqclf.system.version import __version__

NOT_CONTENT = ("cache_dir", "positive", "memory_limit")  # options that do not change the prepared data
LIBRARIES = (np, pa, duckdb, tokenizers)  # libraries of which a new version may parse or generate other data


def states_of(options: DataOptions, splits: Mapping[str, Source]) -> list[SourceState]:
    """Return the state of each source, a dict split → source, and of each file that the options of a field name."""
    labels = source_of(options, "labels")
    all_sources = [*splits.values(), *([labels] if labels is not None else [])]
    states = [sources.source_state(source) for source in all_sources]
    files = [path for spec in (options.fields or {}).values() for path in _option_files(spec)]
    if options.encoders is not None:
        files += sorted(map(str, Path(options.encoders).expanduser().glob("*.json")))
    return states + list(map(_option_file, files))


def changed_file(before: list[SourceState], after: list[SourceState]) -> str | None:
    """Return the path of a file that was changed, added or deleted, "" for a changed option, None if nothing changed.

    Files are compared by size, modification time and inode, not by the inode change time, which chmod and hard links of
    a backup change too. The fingerprint covers it, so a file whose modification time was set back is found in the next
    run.
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
    """Return the files that the options of a field name, such as word vectors."""
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
    """Hash the source of the generator function and of its module, without what they import.

    None if there is no source, as of a compiled function.
    """
    function = inspect.unwrap(locate_generator(generator))
    module = sys.modules.get(str(generator["_target_"]).rpartition(".")[0])
    sources_of = []
    for part in (function, module):
        with suppress(OSError, TypeError):  # a cell of a notebook has a function with a source, and no module
            sources_of.append(inspect.getsource(part))  # type: ignore[arg-type]
    return hashlib.sha256("\0".join(sources_of).encode()).hexdigest() if sources_of else None
