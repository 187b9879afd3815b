"""Examples in docstrings run, and docstrings begin with a statement."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

import seqclf

PACKAGE = Path(seqclf.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
VAGUE_OPENING = re.compile(r"(What|Which|Whether|How|Of|From|Where|Who|When|Between)\b")


def module_name(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


WITH_EXAMPLES = [module_name(path) for path in MODULES if ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_public_classes_and_functions_have_examples():
    assert len(WITH_EXAMPLES) >= 20


def test_public_docstrings_open_with_a_statement():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                private = getattr(node, "name", "").startswith("_")
                first_line = (ast.get_docstring(node) or "").partition("\n")[0]
                assert private or not VAGUE_OPENING.match(first_line), f"{path}: {first_line}"
