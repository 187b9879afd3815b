"""What prepared data depends on: files, options, code and libraries; another fingerprint, and it is made anew."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import tokenizers

from seqclf import __version__
from seqclf.build import locate_generator
from seqclf.data import sources
from seqclf.data.options import DataOptions
from seqclf.data.sources import Source

NOT_CONTENT = ("cache_dir", "positive", "memory_limit", "verify_cache")  # options that change nothing in the dataset
LIBRARIES = (np, pa, duckdb, tokenizers)  # whose versions may change what is read and drawn


def states_of(options: DataOptions, given: Mapping[str, Source]) -> list[Any]:
    """The state of every file that the data is read from."""
    states: list[Any] = [sources.source_digest(source) for source in _every(options, given)]
    return states + [_vector_file(spec["vectors"]) for spec in (options.fields or {}).values() if _has_vectors(spec)]


def _every(options: DataOptions, given: Mapping[str, Source]) -> list[Source]:
    labels = options.source("labels")
    return [*given.values(), *([labels] if labels is not None else [])]


def fingerprint(options: DataOptions, given: Mapping[str, Source], states: list[Any]) -> str:
    keys = {key: value for key, value in asdict(options).items() if key not in NOT_CONTENT}
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
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _has_vectors(spec: Any) -> bool:
    return isinstance(spec, Mapping) and isinstance(spec.get("vectors"), str)


def _vector_file(path: str) -> list[Any]:
    file = Path(path).expanduser()
    return [path, *sources.file_state(file)] if file.is_file() else [path]


def generator_code(generator: Mapping[str, Any]) -> str | None:
    """A hash of the module that a generator is from."""
    module = inspect.getmodule(locate_generator(generator))
    path = getattr(module, "__file__", None)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()
