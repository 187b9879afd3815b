"""A package of somebody else, installed for one test."""

import importlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(patch: pytest.MonkeyPatch, folder: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write a package into `folder` and put it on the path of this process and of those that it starts.

    `patch` takes it off the path again. Its modules are forgotten first, so that each test imports its own.

    `files`: path in the package → content.
    """
    for path, content in {"__init__.py": "", **files}.items():
        (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(content, encoding="utf-8")
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
