"""Files of `data.generator`: written once per set of arguments and version of the generator's code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from seqclf.config.targets import generate
from seqclf.data.caching.cache import CONTENT, CacheEntry
from seqclf.data.caching.checksums import verify, write_checksums
from seqclf.data.caching.fingerprint import generator_code
from seqclf.data.options import DataOptions
from seqclf.data.splitting.policy import SPLITS


def with_generated(options: DataOptions) -> DataOptions:
    """Run `data.generator`, if one is set, and return options that name its files as the sources of all splits.

    A source that the options name already stays.
    """
    if options.generator is None:
        return options
    # NumPy's version counts, because it may change what a generator draws from the same seed.
    parts = [dict(options.generator), generator_code(options.generator), np.__version__]
    key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    entry = CacheEntry(Path(options.cache_dir).expanduser(), f"generated-{options.name}-{key}")

    def is_intact(folder: Path) -> bool:
        verify(folder, options.verify_cache)
        return True

    if not entry.reuse(is_intact):
        with entry.build() as scratch:
            content = scratch / CONTENT
            content.mkdir()
            generate(options.generator, content)
            write_checksums(content, {})  # the generator has written its files by itself, so they are read to be hashed
    files = {name: str(entry.folder / f"{name}.parquet") for name in SPLITS if getattr(options, name) is None}
    return options.model_copy(update={"generator": None, **files})
