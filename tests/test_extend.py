"""`seqclf.extend` is all that a package of somebody else imports."""

import ast
import re
from pathlib import Path

from support.doc_pages import FENCE, blocks, pages

from seqclf import extend

ROOT = Path(__file__).parents[1]
NAMES = sorted(name for name in vars(extend) if not name.startswith("_"))


def imports_of_seqclf(source):
    """Modules of seqclf that a source imports, by dotted name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "seqclf":
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] == "seqclf")


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
    assert "RowLoss" in NAMES and set(NAMES) - described == set()


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
