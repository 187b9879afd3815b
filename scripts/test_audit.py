"""The list of known bad versions can be read, and bad versions are found."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

SCRIPT = Path(__file__).parent / "audit.py"
spec = importlib.util.spec_from_file_location("audit", SCRIPT)
audit = sys.modules["audit"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)
ENTRIES = audit.known_bad()


def test_each_entry_has_a_name_as_pip_writes_it_versions_and_a_source():
    for entry in ENTRIES:
        assert entry.package == canonicalize_name(entry.package)
        assert SpecifierSet(entry.versions) and entry.problem and entry.source.startswith("https://")
    assert [entry.package for entry in ENTRIES] == sorted(entry.package for entry in ENTRIES)
    assert len({entry[:2] for entry in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize(
    ("name", "version", "is_bad"),
    [
        ("lightning", "2.6.3", True),
        ("pytorch_lightning", "2.6.2", True),
        ("lightning", "2.6.6", False),
        ("torch", "2.5.1+cpu", True),
        ("torch", "2.13.0+cpu", False),
        ("PyYAML", "5.3.1", True),
        ("protobuf", "5.27.0", True),
        ("protobuf", "5.29.5", False),
        ("urllib3", "2.6.0", True),
        ("unknown", "0.1", False),
    ],
)
def test_bad_versions_are_found(name, version, is_bad):
    assert bool(audit.findings([(name, version)], ENTRIES)) == is_bad


def test_the_command_fails_where_a_bad_version_is_installed(monkeypatch, capsys):
    assert audit.main() == 0
    monkeypatch.setattr(audit, "installed", lambda: [("torchtriton", "2.0.0")])
    assert audit.main() == 1 and "torchtriton 2.0.0" in capsys.readouterr().err


def test_the_lowest_version_of_no_dependency_is_bad():
    project = tomllib.loads((SCRIPT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {canonicalize_name(one.name): one for one in map(Requirement, project["dependencies"])}
    for entry in ENTRIES:
        parts = getattr(required.get(entry.package), "specifier", ())
        lowest = [part.version for part in parts if part.operator == ">="]
        assert not audit.findings([(entry.package, version) for version in lowest], [entry])
