"""The benchmark as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seqclf.bench.benchmark import BenchmarkResult, WorkloadResult
from seqclf.bench.figure import page_figure
from seqclf.bench.tables import (
    AGAINST,
    OTHER_COLUMNS,
    TIME_COLUMNS,
    formatted,
    growth_line,
    machine_line,
    structure_line,
    workload_line,
)
from seqclf.bench.timing import ModeTiming
from seqclf.documents.figures import picture
from seqclf.documents.html import Table, render_page
from seqclf.system.atomic_files import write_output

TIMES_AS_FAST = "times as fast as static"
MEANINGS = {
    "dynamic, packed": "each batch as long as its longest sequence; packed sequences leave out the rest too",
    "static, compiled": "all batches as long as the longest sequence; compiled by torch.compile with fixed shapes",
    "tokens/s": "tokens of sequences trained on in a second, padding not counted",
    "step ms, p95": "median and 95th percentile of an optimizer step, from collating its batch to the new weights",
    TIMES_AS_FAST: "from the time of all steps: 9 takes a ninth of the time of static, 0.5 twice its time",
    "padding": "share of the computed cells that is padding",
    "memory MB, of training": "peak of a separate process (on a GPU of the device), and what training added",
    "first s": "seconds of the first step beyond a later one: warming up, compiling",
    "graph ms": "what building the graph adds to a forward pass",
    "compiled": "graphs that torch.compile has compiled",
    "loss, macro recall": "over the same sequences after the same steps",
    "good, bad": "at most 1.15 times the time of static; from 1.30 times on, or with more memory, leaks or errors",
}


def write_page(result: BenchmarkResult, path: Path) -> None:
    """Write the page. It needs no other file and no network."""
    summary = (
        f"{machine_line(result.machine)}: the same model, weights, sequences and steps in every mode; medians of "
        "interleaved rounds."
    )
    page = render_page(
        "bench.html",
        title="Dynamic against static graphs",
        summary=summary,
        figure=picture(lambda width_in: page_figure(result, width_in), "Tokens per second of each mode by workload"),
        workloads=[_workload_context(workload) for workload in result.workloads],
        meaning_table=Table({"": "text", " ": "text"}, list(MEANINGS.items())),
    )
    write_output(path, page)


def _workload_context(result: WorkloadResult) -> dict[str, Any]:
    failed = [f"{mode} did not run: {message}" for mode, message in result.errors.items()]
    return {
        "heading": result.name.replace("_", " "),
        "rating": result.rating,
        "size": workload_line(result),
        "time_table": _table(result, TIME_COLUMNS),
        "other_table": _table(result, OTHER_COLUMNS),
        "growth": growth_line(result.growth),
        "structure": structure_line(result.structure),
        "problems": [*failed, *result.structure.errors],
    }


def _table(result: WorkloadResult, headings: Iterable[str]) -> Table:
    """List the figures below each other, with a column for each mode, so that they fit a phone and can be compared."""
    rows = [
        [
            TIMES_AS_FAST if heading == AGAINST else heading,
            *(_cell(timing, heading) for timing in result.timings.values()),
        ]
        for heading in headings
    ]
    return Table({"": "text", **dict.fromkeys(result.timings, "number")}, rows)


def _cell(timing: ModeTiming, heading: str) -> str:
    if heading == AGAINST:
        return "" if timing.time_ratio is None else f"{1 / timing.time_ratio:.3g}"
    return formatted(timing, heading)
