"""Notebooks of the documentation run from top to bottom, and their pages show what they hold."""

import sys
from pathlib import Path

import nbformat
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from notebook_pages import notebooks, page, run

NAMES = [path.stem for path in notebooks()]


@pytest.fixture(params=notebooks(), ids=NAMES)
def path(request):
    return request.param


def test_the_page_is_that_of_the_notebook(path):
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page(path), "run python scripts/notebook_pages.py"


def test_the_stored_outputs_are_those_of_one_run(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


@pytest.mark.slow
def test_a_notebook_runs(path, tmp_path, cache, monkeypatch):
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    stored = nbformat.read(path, as_version=4)
    # Cells check themselves what must hold. Figures depend on the machine.
    printed = [len(cell.outputs) for cell in run(path, tmp_path).cells if cell.cell_type == "code"]
    assert printed == [len(cell.outputs) for cell in stored.cells if cell.cell_type == "code"]
