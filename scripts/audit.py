"""Compare the installed packages with the list of known bad versions, without a network.

    python scripts/audit.py

Prints a line for each bad version that is installed, with the source of the entry in scripts/known_bad.toml. The exit
code is 1 if there is one.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

LIST = Path(__file__).with_name("known_bad.toml")


class Entry(NamedTuple):
    """An entry of the list. `versions`: version specifier of the bad versions. `source`: URL of the advisory."""

    package: str
    versions: str
    problem: str
    source: str


def known_bad() -> list[Entry]:
    """Return the entries of the list."""
    return [Entry(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["bad"]]


def installed() -> list[tuple[str, str]]:
    """Return name and version of each installed package."""
    found = [(package.metadata["Name"], package.version) for package in distributions()]
    return [(name, version) for name, version in found if name and version]  # an interrupted removal leaves neither


def findings(packages: Iterable[tuple[str, str]], entries: Iterable[Entry]) -> list[str]:
    """Return a line for each package whose version an entry holds. `packages`: pairs of name and version.

    >>> findings([("Py_YAML", "5.3")], [Entry("py-yaml", "<5.4", "runs code", "https://x")])
    ['Py_YAML 5.3: runs code (py-yaml<5.4, https://x)']
    """
    entries = list(entries)
    return [
        f"{name} {version}: {entry.problem} ({entry.package}{entry.versions}, {entry.source})"
        for name, version in packages
        for entry in entries
        if canonicalize_name(name) == entry.package and SpecifierSet(entry.versions, True).contains(version)
    ]


def main() -> int:
    found = findings(installed(), known_bad())
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
