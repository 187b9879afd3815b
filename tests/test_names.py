"""One vocabulary: no two modules or public classes share a name, and the words of this project stand in a glossary."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import seqclf

HOME = Path(seqclf.__file__).parent
MODULES = sorted(path for path in HOME.rglob("*.py") if not path.stem.startswith("__"))
ARCHITECTURE = (HOME.parent / "docs/architecture.md").read_text(encoding="utf-8")
HOUSE_WORDS = {"rung", "ladder", "contender", "moved"}  # no terms of the field


def twice(names):
    """Names that occur twice, with the files in which they do."""
    files = defaultdict(list)
    for name, path in names:
        files[name].append(str(path.relative_to(HOME)))
    return {name: found for name, found in files.items() if len(found) > 1}


def public_names(kinds):
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, kinds) and not node.name.startswith("_"):
                yield node.name, path


def test_no_two_modules_have_one_name():
    entry_points = {HOME / path.name for path in (HOME / "commands").glob("*.py")}
    assert twice((path.stem, path) for path in MODULES if path not in entry_points) == {}


def test_no_two_public_classes_have_one_name():
    assert twice(public_names(ast.ClassDef)) == {}


def test_public_names_have_no_house_words():
    names = [name for name, _ in public_names((ast.ClassDef, ast.FunctionDef))] + [path.stem for path in MODULES]
    words = {name: set(re.findall("[a-z]+", re.sub("([A-Z])", r"_\1", name).lower())) for name in names}
    assert {name for name, parts in words.items() if parts & HOUSE_WORDS} == set()


def table(heading):
    """First cells of the rows of the table below a heading of docs/architecture.md."""
    section = ARCHITECTURE[ARCHITECTURE.index(f"## {heading}\n") :].split("\n## ")[0]
    return re.findall(r"^\| ([^|]+) \| (?!meaning|is \|)", section, re.MULTILINE)


def test_the_sixteen_results_are_defined_in_one_sentence_each():
    results = [cell.strip("` ") for cell in table("Results")]
    defined = {name for name, _ in public_names(ast.ClassDef)}
    assert len(results) == 16 and set(results) <= defined
    assert len(table("Glossary")) <= 25
