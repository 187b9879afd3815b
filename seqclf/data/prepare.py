"""Source files → an encoded dataset on disk, once per state of the files and the options.

The folder appears under its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from seqclf import __version__
from seqclf.build import build
from seqclf.data import sources
from seqclf.data.dataset import DamagedError, Dataset, open_dataset
from seqclf.data.options import DataOptions
from seqclf.data.preparation import SPLITS, Preparation
from seqclf.data.sources import Source
from seqclf.errors import InputError

FORMAT = 6
NOT_CONTENT = ("cache_dir", "positive", "memory_limit")  # options that change nothing in the dataset


def prepare(options: DataOptions) -> Dataset:
    """Read, check, split and encode the data, or map what an earlier run prepared from the same files and options."""
    cache = Path(options.cache_dir).expanduser()
    options = with_generated(options)
    if options.train is None:
        raise InputError("data.train is not set; give a file, a glob, a URL or a .sql file: data.train=train.parquet")
    given = {name: source for name in SPLITS if (source := options.source(name)) is not None}
    folder = cache / f"{options.name}-{_fingerprint(options, given)}"
    if folder.is_dir():
        try:
            return open_dataset(folder, options.positive, reused=True)
        except DamagedError:
            shutil.rmtree(folder)
    with _scratch(cache) as work:
        Preparation(options, given, work).run()
        _publish(work / "dataset", folder)
    return open_dataset(folder, options.positive, reused=False)


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder of the cache that is gone at the end, with all that was not published."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=cache, prefix=".preparing-")
    except OSError as error:
        raise InputError(f"data.cache_dir={cache}: cannot be written ({error.strerror}); name another folder") from None
    with folder as work:
        yield Path(work)


def _publish(built: Path, folder: Path) -> None:
    try:
        built.replace(folder)
    except OSError:
        if not folder.is_dir():  # it is there if another process made the same meanwhile
            raise


def _fingerprint(options: DataOptions, given: Mapping[str, Source]) -> str:
    labels = options.source("labels")
    every = [*given.values(), *([labels] if labels is not None else [])]
    states: list[Any] = [sources.source_digest(source) for source in every]
    states += [_vector_file(spec["vectors"]) for spec in (options.fields or {}).values() if _has_vectors(spec)]
    if any(sources.is_volatile(source) for source in every):
        states.append(os.urandom(8).hex())
    keys = {key: value for key, value in asdict(options).items() if key not in NOT_CONTENT}
    text = json.dumps([FORMAT, __version__, keys, states], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _has_vectors(spec: Any) -> bool:
    return isinstance(spec, Mapping) and isinstance(spec.get("vectors"), str)


def _vector_file(path: str) -> list[Any]:
    file = Path(path).expanduser()
    return [path, file.stat().st_size, file.stat().st_mtime_ns] if file.is_file() else [path]


def with_generated(options: DataOptions) -> DataOptions:
    """Options that point to the files of their generator, if they name one; it writes once per set of arguments."""
    if options.generator is None:
        return options
    cache = Path(options.cache_dir).expanduser()
    key = hashlib.sha256(json.dumps(dict(options.generator), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / f"generated-{options.name}-{key}"
    if not folder.is_dir():
        with _scratch(cache) as work:
            (work / "files").mkdir()
            build(options.generator, folder=work / "files")
            _publish(work / "files", folder)
    train, validation, test = (str(folder / f"{name}.parquet") for name in SPLITS)
    return replace(options, generator=None, train=train, validation=validation, test=test)
