"""Source files → an encoded dataset on disk, once per state of the files and the options.

The folder appears under its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from seqclf.config.instantiate import generate
from seqclf.data.build import SPLITS, Preparation
from seqclf.data.caching.checksums import DamagedError, verify, write_checksums
from seqclf.data.caching.fingerprint import changed_file, fingerprint, generator_code, states_of
from seqclf.data.options import DataOptions
from seqclf.data.storage.dataset import Dataset, open_dataset
from seqclf.errors import InputError
from seqclf.system.atomic_files import DISK, scratch_folder


def prepare(options: DataOptions) -> Dataset:
    """Read, check, split and encode the data, or map what an earlier run prepared from the same files and options."""
    cache = Path(options.cache_dir).expanduser()
    options = with_generated(options)
    if options.train is None:
        raise InputError("data.train is not set; give a file, a glob, a URL or a .sql file: data.train=train.parquet")
    given = {name: source for name in SPLITS if (source := options.source(name)) is not None}
    states = states_of(options, given)
    folder = cache / f"{options.name}-{fingerprint(options, given, states)}"
    damaged = None
    if folder.is_dir():
        try:
            return open_dataset(folder, options.positive, True, options.verify_cache)
        except DamagedError as error:
            damaged = _say_damaged(folder, error)
    with _scratch(cache) as work:
        _discard(folder, damaged, work)
        Preparation(options, given, work).run()
        if (changed := changed_file(states, states_of(options, given))) is not None:
            raise InputError(
                f"{changed or given['train']}: a file of the data changed while it was read; run again, on a copy if "
                "it grows"
            )
        _publish(work / "dataset", folder)
    try:
        return open_dataset(folder, options.positive, False, False)
    except DamagedError as error:
        raise InputError(
            f"data.cache_dir={cache}: does not keep what is written to it ({error}); name another"
        ) from None


def _say_damaged(folder: Path, error: DamagedError) -> int | None:
    """Say that a cached folder is made again; gives its inode."""
    print(f"{folder}: the cached data is damaged and is made again ({error})", file=sys.stderr)
    with suppress(FileNotFoundError):
        return folder.stat().st_ino
    return None


def _discard(folder: Path, damaged: int | None, work: Path) -> None:
    """Take a damaged folder away, unless another process has replaced it meanwhile. `damaged`: its inode."""
    with suppress(FileNotFoundError):
        if damaged is not None and folder.stat().st_ino == damaged:
            folder.replace(work / "damaged")
            shutil.rmtree(work / "damaged")


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder of the cache that is gone at the end, with all that was not published."""
    try:
        with scratch_folder(cache, ".preparing-") as folder:
            yield folder
    except OSError as error:
        failed = Path(str(error.filename or cache))
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))  # a file in the place of a folder
        if (error.errno not in DISK and not no_folder) or cache not in (failed, *failed.parents):
            raise
        remedy = "free space there, or name another folder"
        raise InputError(f"data.cache_dir={cache}: cannot be written ({error.strerror or error}); {remedy}") from None


def _publish(built: Path, folder: Path) -> None:
    try:
        built.replace(folder)
    except OSError:
        if not folder.is_dir():  # it is there if another process made the same meanwhile
            raise


def with_generated(options: DataOptions) -> DataOptions:
    """Options that point to the files of their generator, if they name one; it writes once per set of arguments and
    state of its code."""
    if options.generator is None:
        return options
    cache = Path(options.cache_dir).expanduser()
    made_by = [dict(options.generator), generator_code(options.generator), np.__version__]
    key = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / f"generated-{options.name}-{key}"
    damaged = None
    if folder.is_dir():
        try:
            verify(folder, options.verify_cache)
        except DamagedError as error:
            damaged = _say_damaged(folder, error)
    if not folder.is_dir() or damaged is not None:
        with _scratch(cache) as work:
            _discard(folder, damaged, work)
            (work / "files").mkdir()
            generate(options.generator, work / "files")
            write_checksums(work / "files", {})
            _publish(work / "files", folder)
    train, validation, test = (str(folder / f"{name}.parquet") for name in SPLITS)
    files = {"train": train, "validation": validation, "test": test}
    return options.model_copy(update={"generator": None, **files})
