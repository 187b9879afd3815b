"""`seqclf.extend` is all that a package of somebody else imports."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from support.doc_pages import FENCE, blocks, pages

from seqclf import extend

ROOT = Path(__file__).parents[1]
TREE = ast.parse(Path(extend.__file__).read_text(encoding="utf-8"))
TRAINING = {
    "CellEncoder",
    "FiniteCheck",
    "Head",
    "MaskedGRU",
    "MaskedLSTM",
    "RecurrentCell",
    "RowLoss",
    "SequenceEncoder",
    "SequenceNetwork",
    "StructureSchedule",
    "sort_nodes",
    "write_bundle",
}
HEAVY = {"torch", "lightning", "pytorch_lightning", "torchmetrics", "wandb", "matplotlib"}


def imports_of_seqclf(source):
    """Modules of seqclf that a source imports, by dotted name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seqclf":
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "seqclf")


def declared():
    """Module and name in it of each name that type checkers see."""
    (guarded,) = [node for node in TREE.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {alias.asname: (node.module, alias.name) for node in guarded.body for alias in node.names}


def loaded_by(script):
    """All modules that Python has loaded at the end of a script."""
    code = f"import sys; {script}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_type_checkers_see_the_names_of_the_table():
    table = {name: (f"seqclf.{module}", extend._INNER.get(name, name)) for name, module in extend._MODULES.items()}
    assert declared() == table
    assert sorted(table) == extend.__all__ and set(table) <= set(dir(extend))


@pytest.mark.parametrize("name", extend.__all__)
def test_a_name_is_the_object_of_its_module(name):
    module, inner = declared()[name]
    assert getattr(extend, name) is getattr(import_module(module), inner)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Everything'"):
        extend.Everything  # noqa: B018


def test_the_import_alone_loads_no_other_module_of_seqclf():
    loaded = {name for name in loaded_by("import seqclf.extend") if name.split(".")[0] == "seqclf"}
    assert loaded == {"seqclf", "seqclf.extend"}


def test_names_that_train_nothing_load_no_training():
    light = sorted(set(extend.__all__) - TRAINING)
    assert {"NumberSpec", "Share", "State"} <= set(light)
    assert not HEAVY & loaded_by(f"from seqclf.extend import {', '.join(light)}")


def test_every_name_is_imported_or_written_as_code_on_a_page():
    """A name that no page describes leaves, because nobody finds it and it must stay for ever."""
    described = set()
    for page in pages():
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        described |= {word for span in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", span)}
        for block in blocks(page):
            if block.language == "python":
                imports = [node for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.ImportFrom)]
                described |= {name.name for node in imports if node.module == "seqclf.extend" for name in node.names}
    assert set(extend.__all__) - described == set()


def test_no_page_imports_an_inner_module():
    """Each block of the documentation can be copied into a package of somebody else."""
    found = {
        (page.name, module)
        for page in pages()
        for block in blocks(page)
        if block.language == "python"
        for module in imports_of_seqclf(block.text)
    }
    assert ("extending.md", "seqclf.extend") in found
    assert {(page, module) for page, module in found if module not in ("seqclf", "seqclf.extend")} == set()


def test_the_example_packages_import_no_inner_module():
    package = ROOT / "tests" / "end_to_end" / "outside_package"
    sources = {path.name: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = {(name, module) for name, text in sources.items() for module in imports_of_seqclf(text)}
    assert {name for name, _ in found} >= {"cells.py", "time_cells.py"}
    assert {module for _, module in found} <= {"seqclf", "seqclf.extend"}
