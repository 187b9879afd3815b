"""Folders with a file, or a folder of files, per class. Every file below is used, hidden or refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from seqclf.errors import InputError


class RefusedFile(NamedTuple):
    """A file that cannot be used, and the reason."""

    path: Path
    reason: str


class Listing(NamedTuple):
    """Files below a folder. `per_class`: the classes are its sub-folders, not its files."""

    per_class: bool
    used: list[Path]
    refused: list[RefusedFile]
    hidden: list[Path]


def list_files(folder: Path) -> Listing:
    """List the files below a folder on all levels, links to folders followed.

    The first level names the class, as in torchvision's ImageFolder. A file is hidden if its name, or that of a folder
    above it, begins with a dot. Raises InputError for a class without files.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    listing = Listing(bool(classes), [], [], [])
    classes_with_files = set()
    for below, is_file in _walk(folder):
        path, parts = folder / below, below.split("/")
        if any(part.startswith(".") for part in parts):
            listing.hidden.append(path)
        elif not is_file:
            listing.refused.append(RefusedFile(path, "is no regular file; remove it"))
        elif classes and len(parts) == 1:
            listing.refused.append(RefusedFile(path, "is in none of the folders of the classes; move it into one"))
        elif not classes and path.stat().st_size == 0:
            listing.refused.append(RefusedFile(path, "is empty; give it a line per sequence"))
        else:
            listing.used.append(path)
            classes_with_files.add(parts[0])
    for path in classes:
        if path.name not in classes_with_files:
            raise InputError(path, "the folder of a class holds no file that can be read", "fill it, or remove it")
    return listing


def _walk(folder: Path) -> list[tuple[str, bool]]:
    """Every file below a folder, sorted: its relative path, and True for a regular file.

    A link to a folder above it is not followed, so that the walk ends.
    """
    files: list[tuple[str, bool]] = []
    waiting = [("", frozenset({folder.resolve()}))]
    while waiting:
        current, above = waiting.pop()
        for entry in os.scandir(folder / current):  # it knows the kind of each entry without a call per file
            below = f"{current}/{entry.name}" if current else entry.name
            if not entry.is_dir():
                files.append((below, entry.is_file()))
            elif (real := Path(entry.path).resolve()) not in above:
                waiting.append((below, above | {real}))
    return sorted(files)
