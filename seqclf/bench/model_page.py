"""The comparison of models as one HTML page."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from seqclf.bench.model_comparison import ModelComparison, ModelsResult
from seqclf.bench.model_figure import TITLES, page_figure
from seqclf.bench.model_tables import PREDICTION, TRAINING, prediction_cells, training_cells
from seqclf.bench.tables import machine_line, workload_line
from seqclf.documents.figures import picture
from seqclf.documents.html import Table, render_page
from seqclf.system.atomic_files import write_output

MEANINGS = {
    "training": "each batch padded to its longest sequence, in PyTorch",
    "prediction": "the exported model, in batches of similar length, by ONNX Runtime",
    "tokens/s": "tokens of sequences in a second, padding not counted",
    "step ms": "median of an optimizer step, from collating its batch to the new weights",
    "memory MB": "peak of a separate process that trains (on a GPU of the device)",
    "weights": "numbers that training changes",
}


def write_page(result: ModelsResult, path: Path) -> None:
    """Write the page. It needs no other file and no network."""
    reference = result.reference
    page = render_page(
        "bench_models.html",
        title="Models compared",
        summary=(
            f"{machine_line(result.machine)}: the same sequences and batches for all models; medians of "
            "interleaved rounds. What the models learn is not compared: that depends on the data."
        ),
        figures=[
            (f"Thousand tokens a second, {title}", picture(partial(page_figure, result, kind), f"{title} by model"))
            for kind, title in TITLES.items()
        ],
        workloads=[_workload_context(workload, reference) for workload in result.workloads],
        meaning_table=Table({"": "text", " ": "text"}, list(MEANINGS.items())),
    )
    write_output(path, page)


def _workload_context(result: ModelComparison, reference: str) -> dict[str, Any]:
    def table(headings: tuple[str, ...], cells: Any) -> Table:
        columns = [f"against {reference}" if heading == "against" else heading for heading in headings]
        rows = [[name, *cells(figures)] for name, figures in result.models.items()]
        return Table({"": "text", **dict.fromkeys(columns, "number")}, rows)

    return {
        "heading": result.name.replace("_", " "),
        "size": workload_line(result),
        "training": table(TRAINING, training_cells),
        "prediction": table(PREDICTION, prediction_cells),
        "problems": [f"{name} did not run: {message}" for name, message in result.errors.items()],
    }
