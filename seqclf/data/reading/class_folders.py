"""Files of a folder that holds a file, or a folder of files, per class; each is used, hidden or refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from seqclf.errors import InputError


class Listing(NamedTuple):
    """Files below a folder. `per_class`: whether the classes are its sub-folders; `refused`: files and the reasons."""

    per_class: bool
    used: list[Path]
    refused: list[tuple[Path, str]]
    hidden: list[Path]


def list_files(folder: Path) -> Listing:
    """List what is below a folder, all levels, links to folders followed. Raises InputError on a class without files.

    The first level names the class, as in torchvision's ImageFolder. Hidden are files whose name, or that of a folder
    above them, begins with a dot.
    """
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    listing = Listing(bool(classes), [], [], [])
    filled = set()
    for below, is_file in _walk(folder):
        path, parts = folder / below, below.split("/")
        if any(part.startswith(".") for part in parts):
            listing.hidden.append(path)
        elif not is_file:
            listing.refused.append((path, "is no regular file; take it away"))
        elif classes and len(parts) == 1:
            listing.refused.append((path, "stands beside the folders of the classes and so has no class; move it"))
        elif not classes and path.stat().st_size == 0:
            listing.refused.append((path, "is empty; give it a line per sequence"))
        else:
            listing.used.append(path)
            filled.add(parts[0])
    for path in classes:
        if path.name not in filled:
            raise InputError(f"{path}: the folder of a class holds no file that can be read; fill it, or take it away")
    return listing


def _walk(folder: Path) -> list[tuple[str, bool]]:
    """Every file below a folder, sorted, and whether it is a regular one; no link leads to a folder above it again."""
    files: list[tuple[str, bool]] = []
    waiting = [("", frozenset({folder.resolve()}))]
    while waiting:
        current, above = waiting.pop()
        for entry in os.scandir(folder / current):  # it knows kinds without asking for the state of each file
            below = f"{current}/{entry.name}" if current else entry.name
            if not entry.is_dir():
                files.append((below, entry.is_file()))
            elif (real := Path(entry.path).resolve()) not in above:
                waiting.append((below, above | {real}))
    return sorted(files)
