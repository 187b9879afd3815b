"""Hashes of what a step of a run depends on: settings, files, rows and code."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.config.build import is_foreign, package_of, targets
from seqclf.data.storage.store import Split

LIBRARIES = ("torch", "lightning", "torchmetrics")  # a class of these does not change under a run


def code_hashes(settings: Mapping[str, Any]) -> dict[str, list[str | None]]:
    """Return the hashes of the files of each package of somebody else that settings name."""
    foreign = {package_of(target) for _, target in targets(settings, "") if is_foreign(target)}
    return {package: _hashes_of(package) for package in foreign - set(LIBRARIES)}


def _hashes_of(package: str) -> list[str | None]:
    modules = (module for name, module in sorted(sys.modules.items()) if package_of(name) == package)
    paths = (str(getattr(module, "__file__", None) or "") for module in modules)
    return [file_hash(Path(path)) for path in paths if path and "site-packages" not in path]


def rows_hash(split: Split) -> str:
    """Return the hash of what scores hold of rows: labels, ids, groups, lengths. A data set's digest has tokens."""
    columns = {"label": pa.array(split.labels), "id": split.ids, "length": pa.array(split.lengths_before_truncation)}
    if split.groups is not None:
        columns["group"] = pa.array(split.groups)
    if split.group_names is not None:
        columns["group_name"] = split.group_names
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return hashlib.sha256(batch.serialize()).hexdigest()


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 hash of a file, or of all files of a folder, None if they cannot be read."""
    try:
        if path.is_dir():
            return hash_of({str(part.relative_to(path)): file_hash(part) for part in path.rglob("*") if part.is_file()})
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
