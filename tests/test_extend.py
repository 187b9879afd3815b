"""`seqclf.extend` is all that a package of somebody else imports."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from seqclf import extend

ROOT = Path(__file__).parents[1]
LIGHT = {"ArrowFormat", "Format", "NumberColumn", "Encoder", "Problems", "InputError", "require", "choice_option"}


def imports_of_seqclf(source):
    """Modules of seqclf that a source imports, by dotted name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seqclf":
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "seqclf")


def test_every_name_is_the_object_of_its_module_and_known_to_type_checkers():
    tree = ast.parse(Path(extend.__file__).read_text(encoding="utf-8"))
    declared = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("seqclf.")
        for alias in node.names
    }
    assert sorted(declared) == sorted(extend.__all__)
    for name, module in declared.items():
        assert getattr(extend, name) is getattr(import_module(module), name)
    with pytest.raises(AttributeError, match="no attribute 'Everything'"):
        extend.Everything  # noqa: B018


def test_kinds_and_formats_load_no_training():
    script = f"import sys; from seqclf.extend import {', '.join(sorted(LIGHT))}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "lightning", "torchmetrics", "wandb", "matplotlib"} & set(done.stdout.split())


def test_docs_and_the_example_package_import_nothing_else():
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/extending.md").read_text(), re.DOTALL | re.MULTILINE)
    package = ROOT / "tests" / "end_to_end" / "outside_package"
    sources = [*blocks, *(path.read_text() for path in package.rglob("*.py"))]
    found = {module for source in sources for module in imports_of_seqclf(source)}
    assert "seqclf.extend" in found and found <= {"seqclf", "seqclf.extend"}
