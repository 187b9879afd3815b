"""The benchmark as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqclf.benchmark.benchmark import BenchmarkResult, WorkloadResult
from seqclf.reporting.bench.tables import (
    COLUMNS,
    formatted,
    growth_line,
    machine_line,
    structure_line,
    workload_line,
)
from seqclf.reporting.html import Table, bar, render_page
from seqclf.system.atomic_files import write_output

SPEED_HEADINGS = ("tokens/s", "step ms", "p95", "of static", "padding")
OTHER_HEADINGS = tuple(heading for heading in COLUMNS if heading not in SPEED_HEADINGS)
MEANINGS = {
    "dynamic, packed": "each batch as long as its longest sequence; packed sequences leave out the rest too",
    "static, compiled": "all batches as long as the longest sequence; compiled by torch.compile with fixed shapes",
    "tokens/s": "tokens of sequences trained on in a second, padding not counted",
    "step ms, p95": "median and 95th percentile of an optimizer step, from collating its batch to the new weights",
    "of static": "time of all steps, static = 1",
    "padding": "tokens over computed tokens, padding included",
    "memory MB, of training": "peak of a separate process (on a GPU of the device), and what training added",
    "graph ms": "what building the graph adds to a forward pass",
    "first s": "seconds of the first step beyond a later one: warming up, compiling",
    "loss, recall": "over the same sequences after the same steps",
    "good, bad": "up to 1.15 times the static iteration time; from 1.30 on, or with more memory, leaks or errors",
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
        workloads=[_workload_context(workload) for workload in result.workloads],
        meaning_table=Table({"": "text", " ": "text"}, list(MEANINGS.items())),
    )
    write_output(path, page)


def _workload_context(result: WorkloadResult) -> dict[str, Any]:
    fastest = max((timing.tokens_per_s for timing in result.timings.values()), default=1.0)
    speed_rows = [
        [mode, bar(timing.tokens_per_s / fastest), *(formatted(timing, heading) for heading in SPEED_HEADINGS)]
        for mode, timing in result.timings.items()
    ]
    other_rows = [
        [mode, *(formatted(timing, heading) for heading in OTHER_HEADINGS)] for mode, timing in result.timings.items()
    ]
    speed_columns = {"mode": "text", "": "bar", **dict.fromkeys(SPEED_HEADINGS, "number")}
    other_columns = {"mode": "text", **dict.fromkeys(OTHER_HEADINGS, "number")}
    failed = [f"{mode} did not run: {message}" for mode, message in result.errors.items()]
    return {
        "heading": result.name.replace("_", " "),
        "rating": result.rating,
        "size": workload_line(result),
        "speed_table": Table(speed_columns, speed_rows, stacked=True),
        "other_table": Table(other_columns, other_rows, stacked=True),
        "growth": growth_line(result.growth),
        "structure": structure_line(result.structure),
        "problems": [*failed, *result.structure.errors],
    }
