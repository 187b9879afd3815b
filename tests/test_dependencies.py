"""Dependencies: every import of the package is declared, and every declared package is imported."""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import seqclf

HOME = Path(seqclf.__file__).parent
PROJECT = tomllib.loads((HOME.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOT_OF_USERS = {"dev", "docs", "peers"}  # extras that an installation for use does not have
# Distribution of the same import → the one that users install.
SUBSTITUTES = {"mlflow-skinny": "mlflow"}


def requirements(texts):
    """Requirement by name, of those for this machine."""
    parsed = [Requirement(text) for text in texts]
    here = [entry for entry in parsed if entry.marker is None or entry.marker.evaluate()]
    return {canonicalize_name(entry.name): entry for entry in here}


RUN_TIME = requirements(PROJECT["dependencies"])
EXTRAS = {name: requirements(texts) for name, texts in PROJECT["optional-dependencies"].items()}


def imported_names(source):
    """Top-level names of all imports of a module, those in functions and under TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module).partition(".")[0])
    return names


def third_party(sources):
    """Distributions by import name, of the imports that are neither of Python nor of this package."""
    names = set().union(*map(imported_names, sources)) - sys.stdlib_module_names - {"seqclf"}
    installed = packages_distributions()
    found = {name: installed.get(name, [name]) for name in names}
    plain = {name: {canonicalize_name(entry) for entry in entries} for name, entries in found.items()}
    return {name: {SUBSTITUTES.get(entry, entry) for entry in entries} for name, entries in plain.items()}


@pytest.fixture(scope="module")
def imports():
    return third_party(path.read_text(encoding="utf-8") for path in HOME.rglob("*.py"))


def test_every_import_is_declared(imports):
    declared = set(RUN_TIME).union(*(names for extra, names in EXTRAS.items() if extra not in NOT_OF_USERS))
    assert {name: entries for name, entries in imports.items() if not entries & declared} == {}


def test_every_dependency_is_imported(imports):
    assert set(RUN_TIME) - set().union(*imports.values()) == set()


def test_imports_in_functions_and_for_types_count():
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a.b\ndef f():\n    from c.d import e\n"
    assert third_party([lazy, "from . import near\nimport yaml, os"]) == {"a": {"a"}, "c": {"c"}, "yaml": {"pyyaml"}}


@pytest.mark.parametrize(
    ("name", "refused", "good"),
    [
        ("lightning", ["2.6.3", "2.6.5"], "2.6.6"),
        ("hydra-core", ["1.3.5"], "1.3.6"),
        ("onnx", ["1.20.1"], "1.21.0"),
    ],
)
def test_versions_with_known_weaknesses_are_excluded(name, refused, good):
    specifier = RUN_TIME[name].specifier
    assert not any(specifier.contains(entry) for entry in refused) and specifier.contains(good)


def test_installed_versions_are_those_that_are_declared():
    wrong = {name: version(name) for name, entry in RUN_TIME.items() if not entry.specifier.contains(version(name))}
    assert wrong == {}
