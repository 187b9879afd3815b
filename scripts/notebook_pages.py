"""Run the notebooks of the documentation, and write their outputs and the pages that show them.

python scripts/notebook_pages.py
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
TIMEOUT_S = 600  # of a cell
FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def notebooks() -> list[Path]:
    """Return the notebooks of the documentation."""
    return sorted(FOLDER.glob("*.ipynb"))


def run(path: Path, folder: Path) -> NotebookNode:
    """Run a notebook in a new kernel, whose working directory is `folder`, and return it with its outputs.

    Raises an error of nbclient, which shows the cell and its traceback, if a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    # Prints of a cell are one output, whenever they reach the client.
    client = NotebookClient(notebook, timeout=TIMEOUT_S, resources=resources, coalesce_streams=True)
    # A progress line, which is an output too, would appear on slow machines alone.
    client.execute(env={**os.environ, "SEQCLF_PROGRESS": "0"})
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        cell.metadata.clear()  # times of execution
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if is_result(output)]
    return notebook


def is_result(output: NotebookNode) -> bool:
    """Return False for an empty output (the last frame of a progress bar) and for standard error.

    Libraries write to standard error on some machines alone: ONNX Runtime warns where it cannot read graphics cards.
    """
    return output.get("name") != "stderr" and bool(shown_text(output).strip())


def shown_text(output: NotebookNode) -> str:
    """Return the text of an output of a cell. An error is text too."""
    return output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output.get("traceback", []))


def page(path: Path) -> str:
    """Return a notebook as Markdown, with its outputs and a link to its file."""
    body, _ = MarkdownExporter().from_filename(str(path))
    parts = FENCED.split(body)  # prose and outputs, and between them code
    parts[::2] = [re.sub(r"\n{3,}", "\n\n", part) for part in parts[::2]]
    title, rest = "".join(parts).strip().split("\n", 1)
    return f"{title}\n\nThis page is a notebook: [{path.name}]({path.name}).\n{rest}\n"


if __name__ == "__main__":
    for path in notebooks():
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(path, Path(folder)), path)
        path.with_suffix(".md").write_text(page(path), encoding="utf-8")
        print(path)
