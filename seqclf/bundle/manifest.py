"""`manifest.json`: what a bundle is, and the hashes that show damage.

It holds the schema, labels, decision, versions, data fingerprint, metrics, the sha256 of every other file, and a
digest of itself.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from seqclf.errors import InputError

FORMAT = 1
NAME = "manifest.json"


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write the manifest over everything that is in `folder` now."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    files = {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}
    manifest = {"format": FORMAT, **content, "files": files}
    manifest["digest"] = _digest(manifest)
    (folder / NAME).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an undamaged bundle; raises `InputError` naming the file that is missing or has changed."""
    again = "copy the bundle again, or export it anew"
    if not folder.is_dir():
        raise InputError(f"bundle={folder}: no such folder; give the folder that holds {NAME}")
    path = folder / NAME
    if not path.is_file():
        raise InputError(f"bundle={folder}: {NAME} is missing; {again}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        intact = manifest.get("digest") == _digest(manifest)
    except (ValueError, AttributeError):
        intact = False
    if not intact:
        raise InputError(f"bundle={folder}: {NAME} has changed since the export; {again}")
    if manifest["format"] != FORMAT:
        raise InputError(f"bundle={folder}: of format {manifest['format']}, this seqclf reads {FORMAT}; export it anew")
    for name, expected in manifest["files"].items():
        if not (folder / name).is_file():
            raise InputError(f"bundle={folder}: {name} is missing; {again}")
        if _sha256(folder / name) != expected:
            raise InputError(f"bundle={folder}: {name} has changed since the export; {again}")
    return manifest


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(manifest: dict[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
