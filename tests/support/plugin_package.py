"""A package of somebody else, installed for one test: its modules, and metadata with entry points."""

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def write_package(
    folder: Path, name: str, files: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write an installed package into `folder`, as pip would, and return the folder. It must be on Python's path.

    `files`: path in the package → content. `entry_points`: group → name → `module:object`, with the module's name
    inside the package.
    """
    package, metadata = folder / name, folder / f"{name}-1.0.dist-info"
    for path, content in {"__init__.py": "", **files}.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(content, encoding="utf-8")
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    groups = [
        "\n".join([f"[{group}]", *(f"{key} = {name}.{target}" for key, target in entries.items()), ""])
        for group, entries in entry_points.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    return folder


def install_package(
    patch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    files: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
) -> Path:
    """Write a package (see `write_package`) and put it on the path of this process and of those that it starts.

    `patch` takes it off the path again. Its modules are forgotten first, so that each test imports its own.
    """
    write_package(folder, name, files, entry_points)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        del sys.modules[module]
    patch.syspath_prepend(str(folder))
    patch.setenv("PYTHONPATH", str(folder), prepend=":")
    importlib.invalidate_caches()
    return folder


def documented_example(heading: str, language: str = "python", number: int = 1) -> str:
    """Return a code block of a language below a heading of docs/extending.md: the first, or another by its number."""
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= number, f"docs/extending.md: no block {number} of {language} below '{heading}'"
    return blocks[number - 1]
